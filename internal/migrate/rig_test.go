package migrate_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig is a new store set.
type rig struct {
	migrate.Target
	db   *libsql.DB
	t    testing.TB
	base string // of new directories
}

// newRig makes a store set in files, or on servers over the wire, with bindings
// of these names.
func newRig(t testing.TB, wire bool, databases, buckets []string) *rig {
	t.Helper()
	place := libsqltest.File
	if wire {
		place = libsqltest.Wire
	}
	db := place(t).Open(t)
	r := &rig{t: t, db: db, base: t.TempDir(), Target: migrate.Target{Store: kv.New(db), Primary: db.String(), Databases: map[string]migrate.Database{}, Buckets: map[string]durable.Bucket{}}}
	if err := r.Store.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	id, err := mode.Ensure(t.Context(), r.Store)
	if err != nil {
		t.Fatal(err)
	}
	r.StoreID = id.ID
	for _, name := range databases {
		r.Databases[name] = place(t).Open(t)
	}
	blobs, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	r.Objects = objectops.New(objectops.Config{Store: r.Store, Blobs: keeper.InBucket(blobs), StoreID: id.ID, LeaseTTL: 5 * time.Second, InlineLimit: 256 << 10})
	url := ""
	if wire {
		url = fakeS3(t)
	}
	for _, name := range buckets {
		r.Buckets[name] = openBucket(t, url, name)
	}
	return r
}

func fakeS3(t testing.TB) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("things"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0)).Server())
	t.Cleanup(s.Close)
	return s.URL + "/things/"
}

func openBucket(t testing.TB, url, name string) durable.Bucket {
	t.Helper()
	if url == "" {
		b, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	b, err := s3.Open(s3.Config{URL: url + name, Region: "us-east-1", PathStyle: "true", Timeout: time.Minute, Keys: func() (string, string, error) { return "k", "s", nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// newDir is a name for a directory.
func (r *rig) newDir() string {
	r.t.Helper()
	d, err := os.MkdirTemp(r.base, "dir")
	if err != nil {
		r.t.Fatal(err)
	}
	return filepath.Join(d, "data")
}

// made is a directory of test data, and the store set for it.
func made(t testing.TB, wire bool, o migratetest.Options) (r *rig, data string) {
	t.Helper()
	r = newRig(t, wire, []string{"MAIN_DB", "SEARCH_DB", "EMPTY_DB"}, []string{"FILES", "OTHER"})
	data = r.newDir()
	migratetest.Make(t, data, o)
	return r, data
}

// config is a move of a directory.
func (r *rig) config(data string, change ...func(*migrate.Config)) migrate.Config {
	c := migrate.Config{Dir: data, Host: "test", Target: r.Target}
	for _, f := range change {
		f(&c)
	}
	return c
}

// plan plans a move to the store set.
func (r *rig) plan(data string, change ...func(*migrate.Config)) (*migrate.Up, *migrate.Result) {
	r.t.Helper()
	up, err := migrate.NewUp(r.config(data, change...), &migrate.Progress{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { up.Close() })
	res, err := up.Plan(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return up, res
}

// up moves a directory to the store set, to the end.
func (r *rig) up(data string, change ...func(*migrate.Config)) *migrate.Result {
	r.t.Helper()
	up, plan := r.plan(data, change...)
	if err := up.Conflicts(plan); err != nil {
		r.t.Fatal(err)
	}
	res, err := up.Move(r.t.Context())
	if err != nil {
		r.t.Fatalf("%v: %+v", err, res.Problems)
	}
	if !res.Complete {
		r.t.Fatal("not complete")
	}
	up.Close()
	r.isFree()
	return res
}

// down moves the store set to a directory, to the end.
func (r *rig) down(data string, change ...func(*migrate.Config)) *migrate.Result {
	r.t.Helper()
	down, err := migrate.NewDown(r.t.Context(), r.config(data, change...), &migrate.Progress{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer down.Close()
	if _, err := down.Plan(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	res, err := down.Move(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.isFree()
	return res
}

// isFree wants a store set that replicas serve.
func (r *rig) isFree() {
	r.t.Helper()
	marker, id, err := mode.Read(r.t.Context(), r.Store)
	if err == nil {
		err = mode.Check(marker, id)
	}
	if err != nil {
		r.t.Error(err)
	}
}

// counts wants the sums of all kinds.
func counts(t testing.TB, r *migrate.Result, moved, already, bad int64) {
	t.Helper()
	if c := r.Total(); c.Moved != moved || c.Already != already || c.Bad != bad {
		t.Errorf("%d moved, %d there, %d not moved, want %d, %d, %d: %+v", c.Moved, c.Already, c.Bad, moved, already, bad, r.Problems)
	}
}
