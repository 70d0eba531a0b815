package migrate_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/bucket/s3test"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

func eachPlace(t *testing.T, test func(t *testing.T, wire bool)) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("a short run has the wire")
		}
		test(t, false)
	})
	t.Run("wire", func(t *testing.T) { t.Parallel(); test(t, true) })
}

// TestRoundTrip moves a directory to a store set and back: all facts are the
// same at every station, and so are the pages of objects.
func TestRoundTrip(t *testing.T) {
	eachPlace(t, func(t *testing.T, wire bool) {
		r, data := made(t, wire, migratetest.Small)
		want := migratetest.Local(t, data)
		roundTrip(t, r, data, want, 0)
	})
}

// TestFixture is a round trip of data that are shaped like real ones, with the
// facts that come with them.
func TestFixture(t *testing.T) {
	eachPlace(t, func(t *testing.T, wire bool) {
		data, want := migratetest.Fixture(t)
		migratetest.Compare(t, "fixture", migratetest.Local(t, data), want)
		r := newRig(t, wire, slices.Collect(maps.Keys(want.D1)), slices.Collect(maps.Keys(want.R2)))
		if wire { // a server that is a process of its own
			server := s3test.Start(t, "things")
			for name := range r.Buckets {
				b, err := s3.Open(s3.Config{
					URL: server.URL("things") + "/" + name, Region: s3test.Region, PathStyle: "true", Timeout: time.Minute,
					Keys: func() (string, string, error) { return server.Access, server.Secret, nil },
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { b.Close() })
				r.Buckets[name] = b
			}
		}
		roundTrip(t, r, data, want, 6)
	})
}

// roundTrip takes facts through all stations. bad is the number of things that
// do not move.
func roundTrip(t *testing.T, r *rig, data string, want migratetest.Facts, bad int64) {
	t.Helper()
	before := snapshot(t, data)
	objects := 0
	for _, list := range want.DO {
		objects += len(list)
	}
	bodies := 0
	for _, list := range want.R2 {
		bodies += len(list)
	}
	items := int64(objects + bodies + len(want.D1) + 1)
	var proof bytes.Buffer
	res := r.up(data, func(c *migrate.Config) { c.Proof = &proof })
	counts(t, res, items, 0, bad)
	checkProof(t, proof.Bytes())
	migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), want.AtCentral())
	// The source is what it was, but for the messages.
	after := snapshot(t, data)
	for path, text := range before {
		if path != "queue.sqlite" && path != "queue.sqlite-wal" && after[path] != text {
			t.Errorf("%s has changed", path)
		}
	}
	if len(after) > len(before) {
		t.Errorf("%d files, there were %d", len(after), len(before))
	}
	// A second run has nothing to do.
	counts(t, r.up(data), 0, items, bad)
	migratetest.Compare(t, "store set after a second run", migratetest.Central(t, r.Target), want.AtCentral())

	back := r.newDir()
	proof.Reset()
	res = r.down(back, func(c *migrate.Config) { c.Proof = &proof })
	counts(t, res, items, 0, 0)
	checkProof(t, proof.Bytes())
	migratetest.Compare(t, "returned directory", migratetest.Local(t, back), want)
	comparePages(t, data, back)
	for path := range snapshot(t, back) {
		if _, ok := before[path]; !ok && filepath.Dir(path) == "." {
			t.Errorf("%s is not of the layout", path)
		}
	}
	// And once more from there: it is as good as the first.
	again := newRig(t, false, slices.Collect(maps.Keys(want.D1)), slices.Collect(maps.Keys(want.R2)))
	counts(t, again.up(back), items, 0, 0)
	migratetest.Compare(t, "second store set", migratetest.Central(t, again.Target), want.AtCentral())
}

// snapshot reads all files below a directory.
func snapshot(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// comparePages compares the pages of all objects: those without a table of
// alarms are equal, the others but for the pages of the schema, of that table,
// and of the freelist.
func comparePages(t *testing.T, from, to string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(from, "do/*/*.sqlite"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no objects", err)
	}
	equal, others := 0, 0
	for _, path := range paths {
		rel, _ := filepath.Rel(from, path)
		a, except := settled(t, path)
		b, more := settled(t, filepath.Join(to, rel))
		if raw, err := os.ReadFile(filepath.Join(to, rel)); err != nil || !bytes.Equal(raw, b) {
			t.Errorf("%s: the file alone is not the database: %v", rel, err)
		}
		if except == nil {
			equal++
		} else {
			others++
		}
		if len(a) != len(b) {
			t.Errorf("%s: %d bytes, there were %d", rel, len(b), len(a))
			continue
		}
		size := int(binary.BigEndian.Uint16(a[16:]))
		for n := 0; n*size < len(a); n++ {
			if !except[n+1] && !more[n+1] && !bytes.Equal(a[n*size:(n+1)*size], b[n*size:(n+1)*size]) {
				t.Errorf("%s: page %d differs", rel, n+1)
			}
		}
	}
	if equal == 0 || others == 0 {
		t.Errorf("%d objects without a table of alarms, %d with", equal, others)
	}
}

// settled is the database of a file with its WAL worked in, and, when it has a
// table of alarms, the pages that need not be equal.
func settled(t *testing.T, path string) (text []byte, except map[int]bool) {
	t.Helper()
	dir := t.TempDir()
	for _, s := range []string{"", "-wal"} {
		if text, err := os.ReadFile(path + s); err == nil {
			if err := os.WriteFile(filepath.Join(dir, "x"+s), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := sqlite.OpenExisting(filepath.Join(dir, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.QueryText(`SELECT count(*) FROM sqlite_schema WHERE name = '_host_alarm'`); err != nil {
		t.Fatal(err)
	} else if n == "1" {
		except = map[int]bool{}
		s, _, err := c.Prepare(`SELECT pageno FROM dbstat WHERE name IN ('sqlite_schema', '_host_alarm')`)
		if err != nil {
			t.Fatal(err)
		}
		for {
			row, err := s.Step()
			if err != nil {
				t.Fatal(err)
			}
			if !row {
				break
			}
			except[int(s.Value(0).(int64))] = true
		}
		s.Close()
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	if except != nil {
		size := int(binary.BigEndian.Uint16(text[16:]))
		for trunk := int(binary.BigEndian.Uint32(text[32:])); trunk > 0; {
			page := text[(trunk-1)*size : trunk*size]
			except[trunk] = true
			for i := range int(binary.BigEndian.Uint32(page[4:])) {
				except[int(binary.BigEndian.Uint32(page[8+4*i:]))] = true
			}
			trunk = int(binary.BigEndian.Uint32(page))
		}
	}
	return text, except
}
