package mirror

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/superfly/ltx"
)

// history returns the entries of some commits.
func history(t testing.TB, m *Mirror) []*Entry {
	t.Helper()
	var entries []*Entry
	for _, query := range []string{
		"CREATE TABLE t(a INTEGER PRIMARY KEY, b)",
		"INSERT INTO t VALUES(1, randomblob(5000))",
		"INSERT INTO t VALUES(2, randomblob(20000))",
		"UPDATE t SET b = hex(randomblob(4)); VACUUM",
		"INSERT INTO t VALUES(3, 'three')",
	} {
		exec(t, m, query)
		entries = append(entries, commit(t, m))
	}
	return entries
}

// merge compacts entries with the LTX library.
func merge(t testing.TB, entries ...*Entry) []byte {
	t.Helper()
	var in []io.Reader
	for _, e := range entries {
		in = append(in, bytes.NewReader(e.Data))
	}
	var out bytes.Buffer
	c, err := ltx.NewCompactor(&out, in)
	if err == nil {
		err = c.Compact(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestApply(t *testing.T) {
	source := newMirror(t, Config{PageSize: 1024})
	h := history(t, source)
	other := history(t, newMirror(t, Config{PageSize: 1024}))
	bigger := history(t, newMirror(t, Config{PageSize: 4096}))
	d := func(e *Entry) []byte { return e.Data }
	// forged returns an entry that is valid by itself.
	forged := func(e *Entry, change func(*plainEntry)) []byte {
		plain := plainEntry{pages: map[uint32][]byte{}}
		var err error
		plain.header, err = verifyEntry(e.Data, func(pgno uint32, page []byte) error {
			plain.numbers = append(plain.numbers, pgno)
			plain.pages[pgno] = slices.Clone(page)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		change(&plain)
		return plain.encode(t)
	}
	shorter := func(e *Entry) []byte {
		plain := plainEntry{header: Header{PageSize: 1024, Pages: e.Pages + 5, MinTXID: e.Post.TXID, MaxTXID: e.Post.TXID, Pre: e.Pre.Checksum, Post: e.Pre.Checksum}}
		return plain.encode(t)
	}
	legacy := forged(h[0], func(e *plainEntry) {
		e.header.MaxTXID = 9
		e.header.Post ^= pageSum(1, e.pages[1])
		e.pages[1][18], e.pages[1][19] = journalVersion, journalVersion
		e.header.Post = addPage(e.header.Post, pageSum(1, e.pages[1]))
	})
	if _, err := Inspect(legacy); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		entries [][]byte
		want    int // entry whose position is reached, or -1
	}{
		"nothing":                       {nil, 0},
		"next":                          {[][]byte{d(h[1])}, 1},
		"all":                           {[][]byte{d(h[1]), d(h[2]), d(h[3]), d(h[4])}, 4},
		"merged":                        {[][]byte{merge(t, h[1:4]...), d(h[4])}, 3 + 1},
		"merged, from before":           {[][]byte{d(h[1]), d(h[2]), merge(t, h[1:4]...)}, 3},
		"snapshot":                      {[][]byte{merge(t, h[:4]...)}, 3},
		"snapshot of other page size":   {[][]byte{merge(t, bigger[:3]...)}, -2},
		"again":                         {[][]byte{d(h[0])}, -1},
		"gap":                           {[][]byte{d(h[2])}, -1},
		"order":                         {[][]byte{d(h[2]), d(h[1])}, -1},
		"other history later":           {[][]byte{d(h[1]), d(other[2])}, -1},
		"other history merged":          {[][]byte{d(h[1]), merge(t, other[2:4]...)}, -1},
		"forged, from before":           {[][]byte{d(h[1]), d(h[2]), forged(&Entry{Data: merge(t, h[1:4]...)}, func(e *plainEntry) { e.header.Post ^= 1 })}, -1},
		"other page size":               {[][]byte{d(bigger[1])}, -1},
		"already there":                 {[][]byte{d(h[1]), merge(t, h[0:2]...)}, -1},
		"forged checksum":               {[][]byte{forged(h[1], func(e *plainEntry) { e.header.Post ^= 1 })}, -1},
		"new pages missing":             {[][]byte{shorter(h[1])}, -1},
		"empty file":                    {[][]byte{{}}, -1},
		"cut off":                       {[][]byte{d(h[1])[:len(d(h[1]))-1]}, -1},
		"too long":                      {[][]byte{append(bytes.Clone(d(h[1])), 0)}, -1},
		"second bad":                    {[][]byte{d(h[1]), d(h[2])[1:]}, -1},
		"a database without WAL header": {[][]byte{legacy}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, Config{})
			if err := m.Apply(d(h[0])); err != nil {
				t.Fatal(err)
			}
			// What is unconfirmed goes.
			exec(t, m, "INSERT INTO t VALUES(99, 'lost')")
			err := m.Apply(c.entries...)
			if c.want == -1 {
				if !errors.Is(err, ErrDiverged) || !errors.Is(err, ErrDiscarded) {
					t.Fatalf("got %v", err)
				}
				checkLost(t, m)
				return
			}
			want := bigger[2].Post
			if c.want >= 0 {
				want = h[c.want].Post
			}
			if err != nil || m.Position() != want {
				t.Fatalf("at %s, %v; want %s", m.Position(), err, want)
			}
			if len(c.entries) == 0 {
				if err := m.Undo(); err != nil {
					t.Fatal(err)
				}
			}
			if got := value(t, m, "SELECT count(*) FROM t WHERE a = 99"); got != int64(0) {
				t.Error("what was unconfirmed is still there")
			}
			if err := m.Verify(); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("rebuild after a loss", func(t *testing.T) {
		m := newMirror(t, Config{})
		if err := m.Apply(d(h[1])); !errors.Is(err, ErrDiverged) {
			t.Fatalf("delta without a database: %v", err)
		}
		if err := m.Apply(d(h[0]), d(h[1])); err != nil {
			t.Fatal(err)
		}
		if got := value(t, m, "SELECT count(*) FROM t"); got != int64(1) || m.Position() != h[1].Post {
			t.Errorf("%v rows at %s", got, m.Position())
		}
	})
	t.Run("stale WAL", func(t *testing.T) {
		m := newMirror(t, Config{})
		if err := m.Apply(d(h[0])); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.path+"-wal", []byte("stale"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := m.Apply(d(h[1])); !errors.Is(err, ErrDiscarded) {
			t.Errorf("got %v", err)
		}
		checkLost(t, m)
	})
}

// TestEveryByte changes each byte of an entry.
func TestEveryByte(t *testing.T) {
	h := history(t, newMirror(t, Config{PageSize: 512}))
	m := newMirror(t, Config{})
	for _, e := range []*Entry{h[0], h[4]} {
		want := map[uint32]string{}
		if _, err := verifyEntry(e.Data, func(pgno uint32, page []byte) error {
			want[pgno] = string(page)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range e.Data {
			bad := bytes.Clone(e.Data)
			bad[i] ^= 1 << (i % 8)
			got := map[uint32]string{}
			_, err := verifyEntry(bad, func(pgno uint32, page []byte) error {
				got[pgno] = string(page)
				return nil
			})
			if err == nil {
				// LZ4 knows several ways to say the same.
				for pgno, page := range want {
					if got[pgno] != page {
						t.Errorf("byte %d changed: accepted with another page %d", i, pgno)
					}
				}
				continue
			}
			if !errors.Is(err, ErrBadEntry) {
				t.Errorf("byte %d changed: %v", i, err)
			}
			if i%16 == 0 {
				if err := m.Apply(bad); !errors.Is(err, ErrDiscarded) {
					t.Errorf("byte %d changed: applied, %v", i, err)
				}
			}
		}
		for n := range e.Data {
			if _, err := Inspect(e.Data[:n]); !errors.Is(err, ErrBadEntry) {
				t.Errorf("first %d bytes: %v", n, err)
			}
		}
	}
}

func TestVerifyFindsDamage(t *testing.T) {
	m := newMirror(t, Config{})
	history(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := flip(m.path, 2*int64(m.pageSize)-7); err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(); !errors.Is(err, ErrDiverged) {
		t.Fatal(err)
	}
	checkLost(t, m)
}

func TestExport(t *testing.T) {
	m := newMirror(t, Config{})
	var out bytes.Buffer
	if err := m.Export(&out); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("export of nothing: %v", err)
	}
	history(t, m)
	exec(t, m, "INSERT INTO t VALUES(99, 'unconfirmed')")
	if err := m.Export(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "plain.db")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	// Anybody can open it, without WAL.
	c, err := openConn(path)
	if err != nil {
		t.Fatal(err)
	}
	mode, err1 := c.pragma("journal_mode")
	check, err2 := c.pragma("integrity_check")
	if err := errors.Join(err1, err2, c.close(true)); err != nil || mode != "delete" || check != "ok" {
		t.Errorf("journal mode %v, check %v, %v", mode, check, err)
	}

	var snapshot bytes.Buffer
	hdr, err := EncodeSnapshot(&snapshot, bytes.NewReader(out.Bytes()), int64(out.Len()), 7)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Inspect(snapshot.Bytes()); err != nil || got != hdr {
		t.Errorf("snapshot is %+v, %v; want %+v", got, err, hdr)
	}
	back := newMirror(t, Config{})
	if err := back.Apply(snapshot.Bytes()); err != nil {
		t.Fatal(err)
	}
	if back.Position() != (Position{TXID: 7, Checksum: m.Position().Checksum}) {
		t.Errorf("restored to %s, was at %s", back.Position(), m.Position())
	}
	if got := value(t, back, "SELECT count(*) FROM t"); got != int64(3) {
		t.Errorf("%v rows", got)
	}
	for name, b := range map[string][]byte{"empty": {}, "text": bytes.Repeat([]byte("text"), 100), "cut off": out.Bytes()[:out.Len()-1]} {
		if _, err := EncodeSnapshot(io.Discard, bytes.NewReader(b), int64(len(b)), 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
