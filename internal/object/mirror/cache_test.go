package mirror

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestCachedStatements: a statement that is run again sees the schema, the
// rights and the values of its own run.
func TestCachedStatements(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a)")
	for i := range 3 {
		exec(t, m, "INSERT INTO t VALUES(?)", i)
	}
	columns := func() (names []string) {
		for row, err := range m.Query(t.Context(), "SELECT * FROM t LIMIT 1") {
			if err != nil {
				t.Fatal(err)
			}
			names = row.Columns
		}
		return names
	}
	if got := columns(); !slices.Equal(got, []string{"a"}) {
		t.Fatal(got)
	}
	exec(t, m, "ALTER TABLE t ADD b DEFAULT 7")
	if got := columns(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("after ALTER TABLE the columns are %q", got)
	}
	exec(t, m, "ALTER TABLE t DROP COLUMN b")
	if got := columns(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after a DROP COLUMN the columns are %q", got)
	}
	for _, long := range []string{"x", string(make([]byte, 1000)), "yy", string(make([]byte, 100)), ""} {
		if got := value(t, m, "SELECT length(CAST(? AS BLOB))", long); got != int64(len(long)) {
			t.Errorf("a text of %d bytes has length %v", len(long), got)
		}
	}
	if got := value(t, m, "SELECT ?", []byte(nil)); got != nil {
		t.Errorf("nil bytes became %#v", got)
	}
}

// TestCachedStatementInUse: rows of one text are read in turn.
func TestCachedStatementInUse(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(1), (2), (3)")
	const all = "SELECT a FROM t ORDER BY a"
	pairs := 0
	for _, err := range m.Query(t.Context(), all) {
		for _, err2 := range m.Query(t.Context(), all) {
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			pairs++
		}
	}
	if pairs != 9 {
		t.Errorf("%d pairs of 3 rows", pairs)
	}
	// A query that nobody reads on is stopped, and begins anew later.
	var seen error
	for _, err := range m.Query(t.Context(), all) {
		if seen = err; err == nil {
			if err := m.Reset(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(seen, ErrStopped) {
		t.Errorf("rows after a Reset: %v", seen)
	}
	if got := values(t, m, all); len(got) != 3 {
		t.Errorf("the next query: %v", got)
	}
}

// TestNoCacheAroundTheAuthorizer: what the authorizer allowed once it may
// refuse later.
func TestNoCacheAroundTheAuthorizer(t *testing.T) {
	m := newMirror(t, Config{})
	for range 2 {
		exec(t, m, "BEGIN")
		exec(t, m, "COMMIT")
		if err := m.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"COMMIT", "\x00COMMIT", "ROLLBACK"} {
			if _, err := m.Exec(t.Context(), text); err == nil {
				t.Errorf("%q within a Tx", text)
			}
		}
		if err := m.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		exec(t, m, "PRAGMA case_sensitive_like=ON")
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		if got := value(t, m, "SELECT 'a' LIKE 'A'"); got != int64(1) {
			t.Error("a setting of the connection outlived its event")
		}
	}
}

// TestCacheIsBounded: by number, whatever an object runs.
func TestCacheIsBounded(t *testing.T) {
	m := newMirror(t, Config{})
	for i := range 10 * cachedStatements {
		exec(t, m, fmt.Sprintf("SELECT %d", i))
	}
	if n := m.conn.Statements(); n > cachedStatements {
		t.Errorf("%d cached statements", n)
	}
}
