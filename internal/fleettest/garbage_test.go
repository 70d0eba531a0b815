package fleettest

import (
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// files returns the files of logs in an object store that is a directory, by
// their paths in it.
func files(t *testing.T, store string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".ltx") {
			found[path] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// addLarge adds a row that makes a log entry for the object store.
func addLarge(r *Replica, note string) Answer {
	return runSQL(r, note, statement{SQL: `CREATE TABLE IF NOT EXISTS rows(replica)`}, statement{SQL: `INSERT INTO rows VALUES(randomblob(400000))`})
}

// Two store sets on one object store: the second one is refused, in all that it
// could do there, and no file of the first is touched.
func TestTwoStoreSetsOnOneBucket(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		store := t.TempDir()
		shared := "DWK_OBJECT_STORE_URL=file:" + store
		f, other := New(t, kind, shared), New(t, kind)
		a, b := f.Start(), other.Start()
		for range 3 {
			for _, r := range []*Replica{a, b} {
				if ans := addLarge(r, "n"); ans.Status != http.StatusOK {
					t.Fatal(ans)
				}
			}
		}
		had := files(t, store)
		if len(had) < 3 {
			t.Fatalf("files %v", had)
		}
		other.Env = append(other.Env, shared)
		wantRefusal(t, other.Command("serve"), store, "another", "store set")
		for _, args := range [][]string{
			{"object", "restore", "Note", "--name", "n", "--to", "2", "--yes"},
			{"object", "export", "Note", "--name", "n", filepath.Join(t.TempDir(), "n.db")},
		} {
			if res := other.Command(args...); res.Code == 0 || !strings.Contains(res.Stderr, "store set") {
				t.Errorf("dwk %v: exit %d: %s", args, res.Code, res.Stderr)
			}
		}
		if got := files(t, store); !maps.Equal(got, had) {
			t.Errorf("files %v, had %v", got, had)
		}
		wantRows(t, a, "n", 3)
		wantRows(t, b, "n", 3)
	})
}

// A replica that dies between the upload of an entry and its commit leaves a
// file that no row names. It is collected after a day, and nothing else is.
func TestKilledBetweenUploadAndCommit(t *testing.T) {
	t.Parallel()
	EachStores(t, func(t *testing.T, f *Fleet) {
		a, b := f.Start("DWK_FAILPOINTS=object.offload.after=3*kill"), f.Start()
		for range 2 {
			if ans := addLarge(a, "n"); ans.Status != http.StatusOK {
				t.Fatal(ans)
			}
		}
		if ans := addLarge(a, "n"); ans.Err == nil {
			t.Errorf("the replica is to die: %v", ans)
		}
		a.Wait()
		wantRows(t, b, "n", 2) // waits for the lease to end
		f.WaitFree()
		db := f.database()
		want := func(unnamed int) {
			t.Helper()
			res, err := db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT DISTINCT ref FROM obj_log WHERE ref IS NOT NULL`))
			if err != nil {
				t.Fatal(err)
			}
			got := f.Keys("objects/")
			for _, row := range res[0].Rows {
				ref := row[0].(string)
				if !got[ref] {
					t.Errorf("a row names %s, which is not there", ref)
				}
				delete(got, ref)
			}
			if len(got) != unnamed {
				t.Errorf("files that no row names: %v, want %d", got, unnamed)
			}
		}
		want(1)
		age := func() {
			t.Helper()
			const day = 25 * int64(time.Hour/time.Millisecond)
			if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE obj_garbage SET at = at - ?`, day)); err != nil {
				t.Fatal(err)
			}
		}
		k := f.keeper(t, db)
		for _, unnamed := range []int{1, 0} {
			if err := k.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			want(unnamed)
			age()
		}
		wantRows(t, b, "n", 2)
		c := f.Start()
		wantRows(t, c, "n", 2)
		if res := f.Command("object", "restore", "Note", "--name", "n", "--to", "1", "--dry-run"); res.Code != 0 {
			t.Errorf("drill: exit %d: %s", res.Code, res.Stderr)
		}
	})
}

// keeper is one of the fleet's store set, in the process of the test.
func (f *Fleet) keeper(t *testing.T, db *libsql.DB) *keeper.Keeper {
	t.Helper()
	res, err := db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT ref FROM obj_log WHERE ref IS NOT NULL LIMIT 1`))
	if err != nil || len(res[0].Rows) == 0 {
		t.Fatalf("no row names a file: %v", err)
	}
	info, ok := objlog.ParseRef(res[0].Rows[0][0].(string))
	if !ok {
		t.Fatalf("ref %v", res[0].Rows[0][0])
	}
	return keeper.New(keeper.Config{StoreID: info.StoreID, Dir: t.TempDir()}, kv.New(db), keeper.InBucket(f.Objects()), slog.New(slog.DiscardHandler))
}
