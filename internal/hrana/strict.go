package hrana

import (
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// Pragmas that sqld lets through: with or without a value, and only without.
var (
	pragmas = []string{
		"table_list", "index_list", "table_info", "table_xinfo", "index_info", "index_xinfo", "pragma_list", "compile_options", "database_list",
		"function_list", "module_list", "encoding", "defer_foreign_keys", "foreign_keys", "foreign_key_list", "foreign_key_check", "collation_list",
		"data_version", "freelist_count", "integrity_check", "legacy_file_format", "page_count", "quick_check", "stats", "user_version",
	}
	readPragmas = []string{
		"analysis_limit", "application_id", "auto_vacuum", "automatic_index", "busy_timeout", "cache_size", "cache_spill", "cell_size_check",
		"checkpoint_fullfsync", "fullfsync", "hard_heap_limit", "journal_mode", "journal_size_limit", "legacy_alter_table", "locking_mode",
		"max_page_count", "mmap_size", "page_size", "query_only", "read_uncommitted", "recursive_triggers", "reverse_unordered_selects",
		"schema_version", "secure_delete", "soft_heap_limit", "synchronous", "temp_store", "threads", "trusted_schema", "wal_autocheckpoint",
	}
)

// refuse reports a statement that sqld does not let through. Of a text with
// several it looks at the first.
func refuse(sql string) error {
	words := firstWords(sql, 8)
	explained := false
	if len(words) > 0 && words[0] == "EXPLAIN" {
		if words, explained = words[1:], true; len(words) > 0 && words[0] == "QUERY" {
			return nil
		}
	}
	if len(words) == 0 || allowed(words, explained) {
		return nil
	}
	return &proto.Error{Message: "SQL string could not be parsed: unsupported statement: " + sql[:min(len(sql), 200)], Code: "SQL_PARSE_ERROR"}
}

func allowed(words []string, explained bool) bool {
	switch words[0] {
	case "VACUUM", "ANALYZE", "REINDEX", "ATTACH", "DETACH":
		return explained
	case "CREATE":
		temporary := len(words) > 1 && (words[1] == "TEMP" || words[1] == "TEMPORARY")
		i := slices.Index(words, ".")
		return explained || !temporary && (i < 1 || words[i-1] != "TEMP")
	case "PRAGMA":
		words = words[1:]
		if len(words) > 2 && words[1] == "." {
			words = words[2:]
		}
		if len(words) == 0 {
			return true // SQLite will say what is wrong with it
		}
		name := strings.ToLower(words[0])
		valued := len(words) > 1 && (words[1] == "=" || words[1] == "(")
		return slices.Contains(pragmas, name) || !valued && slices.Contains(readPragmas, name)
	}
	return true
}

// firstWords returns up to n words and signs of a statement, in upper case,
// without comments. A word in quotes is one without them.
func firstWords(sql string, n int) (words []string) {
	for sql != "" && len(words) < n {
		switch c := sql[0]; {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			_, sql, _ = strings.Cut(sql[2:], "*/")
		case c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == ';' && words == nil:
			sql = sql[1:]
		case c == ';':
			return words
		case strings.IndexByte("\"'`[", c) >= 0:
			end := string(c)
			if c == '[' {
				end = "]"
			}
			var word string
			word, sql, _ = strings.Cut(sql[1:], end)
			words = append(words, strings.ToUpper(word))
		default:
			i := 0
			for i < len(sql) && (sql[i]|0x20 >= 'a' && sql[i]|0x20 <= 'z' || sql[i] >= '0' && sql[i] <= '9' || sql[i] == '_' || sql[i] >= 0x80) {
				i++
			}
			i = max(i, 1)
			words = append(words, strings.ToUpper(sql[:i]))
			sql = sql[i:]
		}
	}
	return words
}
