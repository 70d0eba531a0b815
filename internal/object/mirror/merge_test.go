package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"

	"github.com/superfly/ltx"

	"github.com/davidwkeith/dwk/internal/object/mirror/mirrortest"
)

func readers(entries ...*Entry) []io.Reader {
	var in []io.Reader
	for _, e := range entries {
		in = append(in, e.Open())
	}
	return in
}

// TestMerge: what is merged of any run of commits does what they did, and is
// what the LTX library makes of it.
func TestMerge(t *testing.T) {
	for _, pageSize := range []int{512, 4096, 65536} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(pageSize), 3))
			source := newMirror(t, Config{PageSize: pageSize, MaxEntry: 64 << 20})
			var log []*Entry
			mirrortest.Event(t, source, r, 0)
			log = append(log, commit(t, source))
			for len(log) < 40 {
				mirrortest.Event(t, source, r, 1)
				if err := source.Reset(); err != nil {
					t.Fatal(err)
				}
				if e, err := source.Capture(); err != nil {
					t.Fatal(err)
				} else if e != nil {
					log = append(log, e)
					if err := source.Confirm(e.Post); err != nil {
						t.Fatal(err)
					}
				}
			}
			runs := 30
			if testing.Short() {
				runs = 8
			}
			for range runs {
				from := r.IntN(len(log))
				to := from + 1 + r.IntN(len(log)-from)
				run := log[from:to]
				minTXID := run[0].Post.TXID
				last := run[len(run)-1].Post
				var out bytes.Buffer
				h, err := Merge(&out, minTXID, last.TXID, 7, readers(run...)...)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := InspectFrom(iotest.OneByteReader(bytes.NewReader(out.Bytes()))); err != nil || got != h || h.After() != last {
					t.Fatalf("%+v, inspected %+v, %v", h, got, err)
				}
				theirs := merge(t, run...)
				a, b := newMirror(t, Config{}), newMirror(t, Config{})
				for _, m := range []*Mirror{a, b} {
					for _, e := range log[:from] {
						if err := m.Apply(e.Data); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := errors.Join(a.ApplyFrom(bytes.NewReader(out.Bytes()), int64(out.Len())), b.Apply(theirs)); err != nil {
					t.Fatal(err)
				}
				x, _ := os.ReadFile(a.path)
				y, _ := os.ReadFile(b.path)
				if !bytes.Equal(x, y) || fileSum(t, a) != last.Checksum {
					t.Fatal("files differ")
				}
				if err := errors.Join(a.Discard(), b.Discard()); err != nil {
					t.Fatal(err)
				}
				if err := ltx.NewDecoder(bytes.NewReader(out.Bytes())).Verify(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	h := history(t, newMirror(t, Config{PageSize: 1024}))
	other := history(t, newMirror(t, Config{PageSize: 1024}))
	bigger := history(t, newMirror(t, Config{}))
	flipped := *h[1]
	flipped.Data = bytes.Clone(h[1].Data)
	flipped.Data[len(flipped.Data)-20] ^= 1
	short := *h[1]
	short.Data = h[1].Data[:len(h[1].Data)-1]
	for name, test := range map[string]struct {
		min, max uint64
		in       []*Entry
	}{
		"nothing":              {1, 2, nil},
		"a later history":      {2, 3, []*Entry{h[1], other[2]}},
		"two snapshots":        {1, 1, []*Entry{h[0], h[0]}},
		"out of order":         {2, 3, []*Entry{h[2], h[1]}},
		"page sizes":           {2, 3, []*Entry{h[1], bigger[2]}},
		"more than asked for":  {2, 2, []*Entry{h[1], h[2]}},
		"snapshot from within": {1, 3, []*Entry{h[1], h[2]}},
		"damaged":              {1, 2, []*Entry{h[0], &flipped}},
		"cut off":              {1, 2, []*Entry{h[0], &short}},
	} {
		if _, err := Merge(io.Discard, test.min, test.max, 0, readers(test.in...)...); !errors.Is(err, ErrBadEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := iotest.ErrReader(io.ErrClosedPipe)
	if _, err := Merge(io.Discard, 1, 2, 0, h[0].Open(), broken); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a reader that fails: %v", err)
	}
	// Commits without pages around the entries are part of the range.
	if got, err := Merge(io.Discard, 2, 9, 0, readers(h[2], h[3])...); err != nil || got.MinTXID != 2 || got.MaxTXID != 9 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLargeEntry: beyond EntryMemory an entry is a file, with the same bytes.
func TestLargeEntry(t *testing.T) {
	inMemory := newMirror(t, Config{})
	onDisk := newMirror(t, Config{EntryMemory: 1000})
	for i, query := range []string{
		"CREATE TABLE t(a, b)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000) INSERT INTO t SELECT i, i * 7919 % 10007 FROM n",
		"DELETE FROM t WHERE a % 3 = 0",
	} {
		exec(t, inMemory, query)
		exec(t, onDisk, query)
		want, got := commit(t, inMemory), commit(t, onDisk)
		if spilled := got.Data == nil; spilled != (got.Size > 1000) {
			t.Errorf("%d bytes in memory: %v", got.Size, !spilled)
		}
		wantPages, gotPages := pagesOf(t, want), pagesOf(t, got)
		if want.Size != int64(len(want.Data)) || got.Size != want.Size || want.Post != got.Post || !bytes.Equal(wantPages, gotPages) {
			t.Errorf("entry %d: %d bytes to %s, want %d to %s", i, got.Size, got.Post, want.Size, want.Post)
		}
		// Opened twice, read twice.
		if !bytes.Equal(gotPages, pagesOf(t, got)) {
			t.Error("the second reading differs")
		}
		if err := errors.Join(got.Close(), got.Close(), want.Close()); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(onDisk.path[:len(onDisk.path)-len("/object.db")]); err != nil || len(entries) > 2 {
		t.Errorf("files are left: %v %v", entries, err)
	}
}

func pagesOf(t *testing.T, e *Entry) []byte {
	t.Helper()
	var all []byte
	if _, err := decodeFrom(e.Open()).each(func(_ uint32, page []byte) error {
		all = append(all, page...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLargeEntryWithoutRoom: the changes stay, and can be undone.
func TestLargeEntryWithoutRoom(t *testing.T) {
	m := newMirror(t, Config{EntryMemory: 1000})
	exec(t, m, "CREATE TABLE t(a)")
	commit(t, m)
	exec(t, m, "INSERT INTO t VALUES(randomblob(20000))")
	dir := m.path[:len(m.path)-len("/object.db")]
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	if _, err := m.Capture(); err == nil || errors.Is(err, ErrDiscarded) {
		t.Errorf("capture: %v", err)
	}
	if got := value(t, m, "SELECT count(*) FROM t"); got != int64(1) {
		t.Errorf("%v rows", got)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.Undo(); err != nil {
		t.Error(err)
	}
}

func TestApplyFrom(t *testing.T) {
	h := history(t, newMirror(t, Config{PageSize: 1024}))
	m := newMirror(t, Config{})
	for i, e := range h {
		if err := m.ApplyFrom(bytes.NewReader(e.Data), e.Size); err != nil {
			t.Fatal(err)
		}
		if m.Position() != e.Post || fileSum(t, m) != e.Post.Checksum {
			t.Fatalf("entry %d: at %s", i, m.Position())
		}
	}
	for name, size := range map[string]int64{"cut off": h[0].Size - 1, "empty": 0} {
		if err := m.ApplyFrom(bytes.NewReader(h[0].Data), size); !errors.Is(err, ErrDiverged) {
			t.Errorf("%s: %v", name, err)
		}
		if m.Position() != (Position{}) {
			t.Errorf("%s: at %s", name, m.Position())
		}
	}
}

// TestEmpty: an object's end, and that it begins anew behind it.
func TestEmpty(t *testing.T) {
	a, b := newMirror(t, Config{}), newMirror(t, Config{})
	exec(t, a, "CREATE TABLE t(a)")
	first := commit(t, a)
	if err := b.Apply(first.Data); err != nil {
		t.Fatal(err)
	}
	if err := a.Empty(1); err == nil {
		t.Error("emptied at a commit that is past")
	}
	exec(t, a, "INSERT INTO t VALUES(1)") // unconfirmed
	for _, m := range []*Mirror{a, b, newMirror(t, Config{})} {
		if err := m.Empty(2); err != nil {
			t.Fatal(err)
		}
		if _, pages := m.Size(); m.Position() != (Position{TXID: 2}) || pages != 0 {
			t.Errorf("at %s", m.Position())
		}
	}
	exec(t, a, "CREATE TABLE t(b)")
	again := commit(t, a)
	if h, err := Inspect(again.Data); err != nil || !h.Snapshot() || h.MaxTXID != 3 {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := b.Apply(again.Data); err != nil || b.Position() != again.Post {
		t.Errorf("at %s, %v", b.Position(), err)
	}
}
