package sqlite

import "strings"

// verb returns what a statement does, in upper case: the first word outside
// parentheses that can begin a statement, behind a WITH clause if there is one.
// It returns "" when there is none.
func verb(sql string) string {
	depth := 0
	for sql != "" {
		switch c := sql[0]; {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			_, sql, _ = strings.Cut(sql[2:], "*/")
		case c == '\'' || c == '"' || c == '`':
			_, sql, _ = strings.Cut(sql[1:], sql[:1]) // a doubled quote is two strings
		case c == '[':
			_, sql, _ = strings.Cut(sql, "]")
		case c == '(':
			depth++
			sql = sql[1:]
		case c == ')':
			depth--
			sql = sql[1:]
		case letter(c):
			n := 1
			for n < len(sql) && letter(sql[n]) {
				n++
			}
			word := sql[:n]
			sql = sql[n:]
			if depth != 0 {
				continue
			}
			switch word = strings.ToUpper(word); word {
			case "INSERT", "REPLACE", "SELECT", "VALUES", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "PRAGMA", "BEGIN", "COMMIT", "END",
				"ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "EXPLAIN", "VACUUM", "ANALYZE", "REINDEX":
				return word
			}
		default:
			sql = sql[1:]
		}
	}
	return ""
}

func letter(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
