package mirror

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

var large = flag.Bool("mirror.large", false, "run the tests that need more than 1 GiB of disk")

func TestCaptureNothing(t *testing.T) {
	m := newMirror(t, Config{})
	nothing := func() {
		t.Helper()
		if e, err := m.Capture(); e != nil || err != nil {
			t.Fatalf("captured %v, %v", e, err)
		}
	}
	nothing()
	value(t, m, "SELECT count(*) FROM sqlite_schema")
	nothing()
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	nothing()
	exec(t, m, "SELECT * FROM t; DELETE FROM t WHERE a = 1; CREATE TEMP TABLE x AS SELECT 1; BEGIN; INSERT INTO t VALUES(1); ROLLBACK")
	nothing()
	if allocs := testing.AllocsPerRun(100, nothing); allocs > 5 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestSpilledRollback: a transaction that is rolled back after it spilled into
// the WAL leaves valid frames there, which a shorter commit overwrites in part;
// while the WAL holds no commit yet, SQLite even chooses new salts.
func TestSpilledRollback(t *testing.T) {
	m := newMirror(t, Config{CacheBytes: 20 << 10})
	spill := func() {
		t.Helper()
		exec(t, m, `BEGIN; CREATE TABLE IF NOT EXISTS s(a);
			WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 200)
			INSERT INTO s SELECT randomblob(2000) FROM c; ROLLBACK`)
		info, err := os.Stat(m.path + "-wal")
		if err != nil || info.Size() < 200<<10 {
			t.Fatalf("nothing was spilled: %v", err)
		}
		if e, err := m.Capture(); e != nil || err != nil {
			t.Fatalf("captured %v, %v", e, err)
		}
	}
	spill()
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	spill()
	exec(t, m, "INSERT INTO t VALUES(1)")
	commit(t, m)
	m.cfg.CheckpointBytes = 1
	exec(t, m, "INSERT INTO t VALUES(2)")
	commit(t, m)
	if m.end.frames != 0 {
		t.Fatal("not checkpointed")
	}
	spill()
	exec(t, m, "INSERT INTO t VALUES(3)")
	commit(t, m)
	spill()
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(m.path + "-wal"); err != nil || info.Size() > 50<<10 {
		t.Errorf("the WAL still takes %d bytes, %v", info.Size(), err)
	}
	exec(t, m, "INSERT INTO t VALUES(4)")
	commit(t, m)
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestDroppedPages(t *testing.T) {
	// A transaction writes pages that it cuts off before its end.
	m := newMirror(t, Config{CacheBytes: 20 << 10})
	other := newMirror(t, Config{})
	exec(t, m, "PRAGMA user_version = 1")
	if err := other.Apply(commit(t, m).Data); err != nil {
		t.Fatal(err)
	}
	exec(t, m, `CREATE TABLE big AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 300) SELECT randomblob(2000) FROM c;
		DROP TABLE big; VACUUM; CREATE TABLE t(a)`)
	e := commit(t, m)
	if e.Pages > 5 {
		t.Errorf("%d pages", e.Pages)
	}
	if err := errors.Join(m.Verify(), other.Apply(e.Data), other.Verify()); err != nil {
		t.Error(err)
	}
}

// TestForeignHand: whatever happens to the WAL behind the mirror is found by
// the next capture, and the mirror is discarded.
func TestForeignHand(t *testing.T) {
	wal := func(m *Mirror) string { return m.path + "-wal" }
	for name, change := range map[string]func(t *testing.T, m *Mirror) error{
		"replaced": func(t *testing.T, m *Mirror) error {
			b, err := os.ReadFile(wal(m))
			return errors.Join(err, os.Remove(wal(m)), os.WriteFile(wal(m), b, 0o600))
		},
		"removed":   func(t *testing.T, m *Mirror) error { return os.Remove(wal(m)) },
		"truncated": func(t *testing.T, m *Mirror) error { return os.Truncate(wal(m), 100) },
		"page changed": func(t *testing.T, m *Mirror) error {
			return flip(wal(m), frameOffset(m.end.frames, m.pageSize)+walFrameSize+100)
		},
		"salt changed": func(t *testing.T, m *Mirror) error {
			return flip(wal(m), frameOffset(m.end.frames, m.pageSize)+8)
		},
		"header changed": func(t *testing.T, m *Mirror) error { return flip(wal(m), 16) },
		"commit mark changed": func(t *testing.T, m *Mirror) error {
			return flip(wal(m), frameOffset(m.end.frames, m.pageSize)+7)
		},
		"checkpointed": func(t *testing.T, m *Mirror) error {
			if _, err := m.conn.checkpoint(3); err != nil { // TRUNCATE
				return err
			}
			exec(t, m, "INSERT INTO t VALUES(3); INSERT INTO t VALUES(4); INSERT INTO t VALUES(5)")
			return nil
		},
		"restarted": func(t *testing.T, m *Mirror) error {
			if _, err := m.conn.checkpoint(2); err != nil { // RESTART
				return err
			}
			for range 10 {
				exec(t, m, "INSERT INTO t VALUES(3)")
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, Config{})
			exec(t, m, "CREATE TABLE t(a)")
			commit(t, m)
			exec(t, m, "INSERT INTO t VALUES(1)")
			commit(t, m)
			exec(t, m, "INSERT INTO t VALUES(2)")
			if err := change(t, m); err != nil {
				t.Fatal(err)
			}
			if e, err := m.Capture(); !errors.Is(err, ErrCapture) {
				t.Fatalf("captured %v, %v", e, err)
			}
			checkLost(t, m)
		})
	}
}

// flip changes a byte of a file.
func flip(path string, offset int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		return err
	}
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], offset)
	return err
}

// checkLost makes sure that a discarded mirror answers nothing, and can be
// used again once that is acknowledged.
func checkLost(t *testing.T, m *Mirror) {
	t.Helper()
	for _, path := range []string{m.path, m.path + "-wal", m.path + "-shm"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", filepath.Base(path))
		}
	}
	if pos := m.Position(); pos != (Position{}) {
		t.Errorf("position %s", pos)
	}
	_, captureErr := m.Capture()
	_, markErr := m.Mark()
	for name, err := range map[string]error{
		"Exec": errOf(m.Exec(t.Context(), "SELECT 1")), "Query": queryErr(t.Context(), m, "SELECT 1"),
		"Begin": m.Begin(t.Context()), "Capture": captureErr, "Mark": markErr, "Undo": m.Undo(), "Reset": m.Reset(),
		"Advance": m.Advance(100), "Verify": m.Verify(), "Confirm": m.Confirm(Position{}),
	} {
		if !errors.Is(err, ErrDiscarded) {
			t.Errorf("%s of a discarded mirror: %v", name, err)
		}
	}
	if err := m.Discard(); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "CREATE TABLE again(a)")
	if e := commit(t, m); e.Post.TXID != 1 {
		t.Errorf("first entry leads to %s", e.Post)
	}
}

func TestDamagedDatabase(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(randomblob(10000))")
	commit(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flip(m.path, int64(m.pageSize)); err != nil { // the root page of t
		t.Fatal(err)
	}
	err := queryErr(t.Context(), m, "SELECT * FROM t")
	if _, ok := errors.AsType[*SQLError](err); !ok || !errors.Is(err, ErrDiscarded) {
		t.Fatalf("query of a damaged table: %v", err)
	}
	checkLost(t, m)

	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	if err := errors.Join(m.Close(), os.Remove(m.path)); err != nil {
		t.Fatal(err)
	}
	if err := queryErr(t.Context(), m, "SELECT * FROM t"); !errors.Is(err, ErrDiscarded) {
		t.Errorf("query of a file that is gone: %v", err)
	}
	checkLost(t, m)
}

func TestEntryTooLarge(t *testing.T) {
	m := newMirror(t, Config{MaxEntry: 100 << 10})
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	exec(t, m, "INSERT INTO t VALUES(randomblob(1000000))")
	for range 2 {
		e, err := m.Capture()
		if !errors.Is(err, ErrEntryTooLarge) || !errors.Is(err, durable.ErrTooLarge) {
			t.Fatalf("captured %v, %v", e, err)
		}
	}
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(zeroblob(1000000))") // which is small in the entry
	if e := commit(t, m); len(e.Data) > 100<<10 {
		t.Errorf("entry of %d bytes", len(e.Data))
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestMaxSize(t *testing.T) {
	m := newMirror(t, Config{MaxSize: 400 << 10})
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	_, err := m.Exec(t.Context(), "INSERT INTO t VALUES(randomblob(1000000))")
	if !errors.Is(err, ErrTooLarge) || !errors.Is(err, durable.ErrTooLarge) {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(randomblob(100000))")
	commit(t, m)
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestMidQuery(t *testing.T) {
	m := newMirror(t, Config{CheckpointBytes: 1})
	exec(t, m, "CREATE TABLE t(a); INSERT INTO t VALUES(1), (2), (3), (4)")
	commit(t, m)
	// An event can commit while it reads.
	n := 0
	for row, err := range m.Query(t.Context(), "SELECT a FROM t WHERE a < 10") {
		if err != nil {
			t.Fatal(err)
		}
		exec(t, m, "INSERT INTO t VALUES(? + 10)", row.Values[0])
		commit(t, m)
		n++
	}
	if n != 4 || m.Position().TXID != 5 {
		t.Errorf("%d rows, position %s", n, m.Position())
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	// Also what a failing statement left.
	exec(t, m, "CREATE TABLE u(a UNIQUE)")
	commit(t, m)
	for _, err := range m.Query(t.Context(), "SELECT a FROM t LIMIT 1") {
		if err != nil {
			t.Fatal(err)
		}
		if e, err := m.Capture(); e != nil || err != nil {
			t.Fatalf("captured %v, %v", e, err)
		}
		if _, err := m.Exec(t.Context(), "INSERT OR FAIL INTO u VALUES(1), (1)"); err == nil {
			t.Error("inserted twice")
		}
		commit(t, m)
	}
	if got := value(t, m, "SELECT count(*) FROM u"); got != int64(1) {
		t.Errorf("%v rows, want 1", got)
	}
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	// An undo ends what is being read.
	exec(t, m, "INSERT INTO t VALUES(5)")
	var got error
	for _, err := range m.Query(t.Context(), "SELECT a FROM t") {
		if err != nil {
			got = err
			break
		}
		if err := m.Undo(); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(got, ErrStopped) {
		t.Errorf("query after undo: %v", got)
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestConfirm(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a)")
	e, err := m.Capture()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Confirm(Position{TXID: 1, Checksum: 1}); err == nil {
		t.Error("confirmed what was not captured")
	}
	exec(t, m, "INSERT INTO t VALUES(1)") // after the capture
	if err := m.Confirm(e.Post); err != nil {
		t.Fatal(err)
	}
	if err := m.Confirm(e.Post); err == nil {
		t.Error("confirmed twice")
	}
	if second := commit(t, m); second.Pre != e.Post {
		t.Errorf("second entry from %s, want %s", second.Pre, e.Post)
	}
	exec(t, m, "INSERT INTO t VALUES(2)")
	if e, err = m.Capture(); err != nil {
		t.Fatal(err)
	}
	if err := m.Undo(); err != nil {
		t.Fatal(err)
	}
	if err := m.Confirm(e.Post); err == nil {
		t.Error("confirmed what was undone")
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func TestAdvance(t *testing.T) {
	m, other := newMirror(t, Config{}), newMirror(t, Config{})
	// Commits without pages can come before the database.
	if err := m.Advance(3); err != nil {
		t.Fatal(err)
	}
	if err := m.Advance(3); err == nil {
		t.Error("advanced to the same commit")
	}
	exec(t, m, "CREATE TABLE t(a)")
	if err := m.Advance(4); err == nil {
		t.Error("advanced over changes")
	}
	first := commit(t, m)
	if first.Pre != (Position{TXID: 3}) || first.Post.TXID != 4 {
		t.Errorf("first entry from %s to %s", first.Pre, first.Post)
	}
	if h, err := Inspect(first.Data); err != nil || !h.Snapshot() || h.MaxTXID != 4 {
		t.Errorf("first entry is %+v, %v", h, err)
	}
	if err := m.Advance(6); err != nil {
		t.Fatal(err)
	}
	empty, err := encodeEmpty(first.Post, 6, first.PageSize, first.Pages)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, m, "INSERT INTO t VALUES(1)")
	second := commit(t, m)
	if second.Post.TXID != 7 {
		t.Errorf("second entry to %s", second.Post)
	}
	if err := other.Apply(first.Data, empty, second.Data); err != nil {
		t.Fatal(err)
	}
	if other.Position() != m.Position() {
		t.Errorf("positions %s and %s", m.Position(), other.Position())
	}
}

func TestMarks(t *testing.T) {
	m, other := newMirror(t, Config{}), newMirror(t, Config{})
	mark := func() Mark {
		t.Helper()
		mark, err := m.Mark()
		if err != nil {
			t.Fatal(err)
		}
		return mark
	}
	start := mark()
	exec(t, m, "CREATE TABLE gone(a)")
	if err := m.UndoTo(start); err != nil {
		t.Fatal(err)
	}
	exec(t, m, "CREATE TABLE t(a)")
	first := mark()
	exec(t, m, "SELECT * FROM t; CREATE TEMP TABLE x(a)")
	if err := m.Reset(); err != nil || mark() != first {
		t.Errorf("another mark, and nothing was written (%v)", err)
	}
	exec(t, m, "INSERT INTO t VALUES(1)")
	if mark() == first {
		t.Error("the same mark after a write")
	}
	second := mark()
	exec(t, m, "INSERT INTO t VALUES(2); BEGIN; DROP TABLE t")
	if err := m.UndoTo(second); err != nil {
		t.Fatal(err)
	}
	for name, stale := range map[string]Mark{"zero": {}, "start": start, "first": first, "second": second} {
		if err := m.UndoTo(stale); !errors.Is(err, ErrStaleMark) {
			t.Errorf("%s mark: %v", name, err)
		}
	}
	exec(t, m, "INSERT INTO t VALUES(3)")
	e := commit(t, m)
	if err := other.Apply(e.Data); err != nil {
		t.Fatal(err)
	}
	if got := values(t, other, "SELECT a FROM t"); len(got) != 2 || got[0] != int64(1) || got[1] != int64(3) {
		t.Errorf("rows %v, want 1 and 3", got)
	}
	last := mark()
	exec(t, m, "INSERT INTO t VALUES(4)")
	commit(t, m)
	if err := m.UndoTo(last); !errors.Is(err, ErrStaleMark) {
		t.Errorf("mark before a confirm: %v", err)
	}
}

func TestIntact(t *testing.T) {
	m := newMirror(t, Config{})
	check := func(want bool) {
		t.Helper()
		if got := m.Intact(); got != want {
			t.Errorf("intact is %v, want %v", got, want)
		}
	}
	check(true)
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	check(true)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	check(true)
	value(t, m, "SELECT count(*) FROM t")
	if err := os.Remove(m.path); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := os.WriteFile(m.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check(false)
	if err := m.Discard(); err != nil {
		t.Fatal(err)
	}
	check(true)
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	if err := os.Remove(m.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	check(false)
}

func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	old := New(filepath.Join(dir, "a.db"), Config{})
	exec(t, old, "CREATE TABLE secret(a)")
	commit(t, old)
	// The process dies here; its successor starts with what is on disk.
	m := New(filepath.Join(dir, "a.db"), Config{})
	if got := values(t, m, "SELECT name FROM sqlite_schema"); len(got) != 0 {
		t.Errorf("what was left is still there: %v", got)
	}
	if info, err := os.Stat(m.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info.Mode(), err)
	}
	if err := errors.Join(m.Discard(), old.Discard()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
}

// TestLockPage grows a database over the page at 1 GiB and back.
func TestLockPage(t *testing.T) {
	if !*large {
		t.Skip("needs -mirror.large")
	}
	m, other := newMirror(t, Config{MaxEntry: 1 << 30}), newMirror(t, Config{})
	for _, query := range []string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b)",
		"INSERT INTO t VALUES(1, zeroblob(600000000))",
		"INSERT INTO t VALUES(2, zeroblob(550000000))",
		"INSERT INTO t VALUES(3, randomblob(9000))",
		"DELETE FROM t WHERE a = 2",
		"VACUUM",
	} {
		exec(t, m, query)
		e := commit(t, m)
		if err := other.Apply(e.Data); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		if other.Position() != m.Position() {
			t.Fatalf("%s: positions %s and %s", query, m.Position(), other.Position())
		}
	}
	if err := errors.Join(m.Verify(), other.Verify()); err != nil {
		t.Error(err)
	}
}
