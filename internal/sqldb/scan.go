package sqldb

import "strings"

// A scanner reads the words of a SQL text that are outside quotes and comments.
type scanner struct{ sql string }

func keywords(sql string) scanner { return scanner{sql} }

// next returns the next word in upper case, or "" at the end.
func (s *scanner) next() string { return s.word(nil) }

// main returns the first word outside parentheses that begins the statement
// behind a WITH clause.
func (s *scanner) main() string {
	depth := 0
	for {
		word := s.word(&depth)
		if word == "" {
			return ""
		}
		switch word {
		case "SELECT", "VALUES", "INSERT", "REPLACE", "UPDATE", "DELETE":
			if depth == 0 {
				if word == "VALUES" {
					word = "SELECT"
				}
				return word
			}
		}
	}
}

// word returns the next word, and counts parentheses.
func (s *scanner) word(depth *int) string {
	for s.sql != "" {
		switch c := s.sql[0]; {
		case strings.HasPrefix(s.sql, "--"):
			_, s.sql, _ = strings.Cut(s.sql, "\n")
		case strings.HasPrefix(s.sql, "/*"):
			_, s.sql, _ = strings.Cut(s.sql[2:], "*/")
		case c == '\'' || c == '"' || c == '`':
			_, s.sql, _ = strings.Cut(s.sql[1:], s.sql[:1]) // a doubled quote is two strings
		case c == '[':
			_, s.sql, _ = strings.Cut(s.sql, "]")
		case letter(c):
			n := 1
			for n < len(s.sql) && letter(s.sql[n]) {
				n++
			}
			word := s.sql[:n]
			s.sql = s.sql[n:]
			return strings.ToUpper(word)
		default:
			if depth != nil && c == '(' {
				*depth++
			} else if depth != nil && c == ')' {
				*depth--
			}
			s.sql = s.sql[1:]
		}
	}
	return ""
}

func letter(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
