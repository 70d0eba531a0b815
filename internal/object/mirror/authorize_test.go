package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAuthorizer(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, `CREATE TABLE t(a INTEGER PRIMARY KEY, b REFERENCES t); CREATE INDEX ti ON t(b);
		INSERT INTO t VALUES(1, 1); CREATE VIRTUAL TABLE f USING fts5(x)`)
	commit(t, m)
	outside := filepath.Join(t.TempDir(), "outside.db")

	for _, query := range []string{
		"VACUUM", "VACUUM main", "REINDEX", "ANALYZE", "PRAGMA optimize",
		"PRAGMA table_info(t)", "PRAGMA table_xinfo('t')", "PRAGMA table_list", "PRAGMA index_list(t)",
		"PRAGMA index_info(ti)", "PRAGMA index_xinfo(ti)", "PRAGMA foreign_key_list(t)", "PRAGMA foreign_key_check",
		"PRAGMA foreign_keys", "PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON", "PRAGMA defer_foreign_keys = ON",
		"PRAGMA user_version", "PRAGMA user_version = 7", "PRAGMA application_id = 1", "PRAGMA data_version",
		"PRAGMA integrity_check", "PRAGMA quick_check", "PRAGMA page_count", "PRAGMA page_size", "PRAGMA freelist_count",
		"PRAGMA recursive_triggers = ON", "PRAGMA case_sensitive_like = OFF", "PRAGMA function_list",
		"PRAGMA collation_list", "PRAGMA compile_options", "PRAGMA encoding", "PRAGMA journal_mode", "PRAGMA Journal_Mode",
		"PRAGMA main.table_info(t)", "SELECT * FROM pragma_table_info('t')", "SELECT * FROM pragma_journal_mode",
		"INSERT INTO f VALUES('hello')", "SELECT * FROM f WHERE f MATCH 'hello'", "INSERT INTO f(f) VALUES('optimize')",
		"ALTER TABLE t ADD COLUMN c DEFAULT 1", "ALTER TABLE t RENAME COLUMN c TO d", "ALTER TABLE t DROP COLUMN d",
		"CREATE TEMP TABLE x(a)", "DROP TABLE x", "SAVEPOINT s", "RELEASE s", "BEGIN IMMEDIATE", "COMMIT",
		"EXPLAIN QUERY PLAN SELECT * FROM t", "SELECT json_extract('{\"a\":1}', '$.a')",
		"SELECT * FROM dbstat", "SELECT pgno FROM sqlite_dbpage",
	} {
		if _, err := m.Exec(t.Context(), query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	if err := m.Reset(); err != nil {
		t.Fatal(err)
	}

	for query, what := range map[string]string{
		"ATTACH ':memory:' AS x":                    "ATTACH",
		"ATTACH '' AS x":                            "ATTACH",
		"ATTACH '" + outside + "' AS x":             "ATTACH",
		"ATTACH '" + m.path + "' AS x":              "ATTACH",
		"DETACH main":                               "DETACH",
		"VACUUM INTO '" + outside + "'":             "VACUUM INTO",
		"VACUUM main INTO '" + outside + "'":        "VACUUM INTO",
		"PRAGMA journal_mode = DELETE":              "setting PRAGMA journal_mode",
		"PRAGMA main.journal_mode(OFF)":             "setting PRAGMA journal_mode",
		"PRAGMA locking_mode = NORMAL":              "setting PRAGMA locking_mode",
		"PRAGMA synchronous = FULL":                 "setting PRAGMA synchronous",
		"PRAGMA page_size = 1024":                   "setting PRAGMA page_size",
		"PRAGMA max_page_count = 1000000":           "setting PRAGMA max_page_count",
		"PRAGMA cache_size = 1000000":               "setting PRAGMA cache_size",
		"PRAGMA mmap_size = 1000000":                "setting PRAGMA mmap_size",
		"PRAGMA wal_autocheckpoint = 1":             "setting PRAGMA wal_autocheckpoint",
		"PRAGMA auto_vacuum = 1":                    "setting PRAGMA auto_vacuum",
		"PRAGMA schema_version = 1":                 "setting PRAGMA schema_version",
		"PRAGMA query_only = 1":                     "setting PRAGMA query_only",
		"PRAGMA wal_checkpoint":                     "PRAGMA wal_checkpoint",
		"PRAGMA wal_checkpoint(TRUNCATE)":           "PRAGMA wal_checkpoint",
		"PRAGMA writable_schema = ON":               "PRAGMA writable_schema",
		"PRAGMA writable_schema":                    "PRAGMA writable_schema",
		"PRAGMA temp_store_directory = '/'":         "PRAGMA temp_store_directory",
		"PRAGMA journal_size_limit = 1":             "PRAGMA journal_size_limit",
		"PRAGMA hard_heap_limit = 1":                "PRAGMA hard_heap_limit",
		"PRAGMA threads = 8":                        "PRAGMA threads",
		"PRAGMA unheard_of":                         "PRAGMA unheard_of",
		"PRAGMA exclusive_locking":                  "PRAGMA exclusive_locking",
		"EXPLAIN PRAGMA wal_checkpoint":             "PRAGMA wal_checkpoint",
		"SELECT 1; PRAGMA journal_mode = DELETE":    "setting PRAGMA journal_mode",
		"CREATE TEMP TABLE y(a); ATTACH '' AS main": "ATTACH",
	} {
		_, err := m.Exec(t.Context(), query)
		if e, ok := errors.AsType[*DeniedError](err); !ok || e.What != what {
			t.Errorf("%s: %v, want %s denied", query, err, what)
		}
	}
	for _, query := range []string{
		"SELECT load_extension('x')", "UPDATE sqlite_schema SET sql = ''", "UPDATE sqlite_dbpage SET data = zeroblob(4096)",
		"DELETE FROM f_data", "SELECT writefile('/tmp/x', 'y')", "SELECT readfile('/etc/passwd')", "SELECT edit('x')",
		"ATTACH ? AS x", "ATTACH lower('') AS x", "VACUUM INTO ?",
	} {
		args := []any{}
		if query[len(query)-1] == '?' || query == "ATTACH ? AS x" {
			args = append(args, outside)
		}
		if _, err := m.Exec(t.Context(), query, args...); err == nil {
			t.Errorf("%s: no error", query)
		}
	}
	if _, err := os.Stat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file was made outside")
	}
	// Nothing of this has hurt the capture.
	commit(t, m)
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}
