package audit

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const inlineLimit = 64 << 10

// A fixture is a store set that a replica has claimed.
type fixture struct {
	*testing.T
	db      *libsql.DB
	store   *kv.Store
	storeID string
	files   *dir.Bucket
	blobs   keeper.Blobs
	r       *rand.Rand
}

// sizes are the files of a bucket.
type sizes struct{ durable.Bucket }

func (s sizes) Size(ctx context.Context, ref string) (int64, error) {
	info, err := s.Head(ctx, ref)
	return info.Size, err
}

func each(t *testing.T, test func(f *fixture)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(newFixture(t, place(t))) })
	}
}

func newFixture(t *testing.T, place libsqltest.Place) *fixture {
	t.Helper()
	db := place.Open(t)
	b, err := dir.Open(filepath.Join(t.TempDir(), "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f := &fixture{T: t, db: db, store: kv.New(db), files: b, blobs: keeper.InBucket(b), r: rand.New(rand.NewPCG(1, 2))}
	f.must(f.store.Init(t.Context(), objlog.Schema...))
	id, err := mode.Ensure(t.Context(), f.store)
	f.must(err)
	f.storeID = id.ID
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) sql(query string, args ...any) libsql.Result {
	f.Helper()
	return libsqltest.MustBatch(f, f.db, libsql.Write, libsql.S(query, args...))[0]
}

// plan commits a plan that must hold.
func (f *fixture) plan(add func(p *kv.Plan)) kv.Verdict {
	f.Helper()
	p := kv.NewPlan()
	add(p)
	v, err := f.store.Commit(f.Context(), p)
	f.must(err)
	if !v.OK {
		f.Fatal("plan refused")
	}
	return v
}

// set writes an entry as text, whatever it is.
func (f *fixture) set(key tuple.Key, value string, ttl time.Duration) {
	f.Helper()
	k, err := key.Encode()
	f.must(err)
	f.plan(func(p *kv.Plan) { p.Set(k, value, ttl) })
}

// audit runs an audit and returns what it found.
func (f *fixture) audit(change ...func(*Options)) ([]Finding, Summary) {
	f.Helper()
	o := Options{Deep: true, Overdue: time.Minute, Settle: time.Millisecond}
	for _, c := range change {
		c(&o)
	}
	found, sum, err := f.run(o)
	f.must(err)
	return found, sum
}

func (f *fixture) run(o Options) (found []Finding, sum Summary, err error) {
	cfg := Config{
		Store: f.store, Files: sizes{f.files}, StoreID: f.storeID, LeaseTTL: time.Minute, Schedules: map[string]cron.Options{"s": scheduled},
		Objects: objectops.New(objectops.Config{Store: f.store, Blobs: f.blobs, StoreID: f.storeID, Dir: f.TempDir()}),
	}
	sum, err = Run(f.Context(), cfg, o, func(x Finding) error { found = append(found, x); return nil })
	return found, sum, err
}

// finds runs an audit that must find exactly these checks, in any order.
func (f *fixture) finds(want ...string) []Finding {
	f.Helper()
	found, _ := f.audit()
	var got []string
	for _, x := range found {
		got = append(got, x.Check)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		f.Errorf("found %v, want %v", got, want)
		for _, x := range found {
			f.Logf("%s %s/%s: %s; %s", x.Check, x.Class, x.ID, x.Message, x.Reason)
		}
	}
	return found
}

// says demands that a finding mentions all of the words.
func (f *fixture) says(found []Finding, check, words string) {
	f.Helper()
	i := slices.IndexFunc(found, func(x Finding) bool { return x.Check == check })
	if i < 0 {
		f.Errorf("no finding %s", check)
		return
	}
	said := fmt.Sprint(found[i].Message, "; ", found[i].Reason, found[i].Class, "/", found[i].ID, found[i].Queue, found[i].Schedule)
	for word := range strings.SplitSeq(words, "|") {
		if !strings.Contains(said, word) {
			f.Errorf("%s: %q does not mention %q", check, said, word)
		}
	}
}

// An object is a log under construction.
type logged struct {
	f    *fixture
	id   string
	m    *mirror.Mirror
	head objlog.Head
}

func (f *fixture) object(id string) *logged {
	o := &logged{f: f, id: id, m: mirror.New(filepath.Join(f.TempDir(), "object.db"), mirror.Config{})}
	f.Cleanup(func() { o.m.Discard() })
	return o
}

func (o *logged) exec(query string, args ...any) {
	o.f.Helper()
	if _, err := o.m.Exec(o.f.Context(), query, args...); err != nil {
		o.f.Fatalf("%s: %v", query, err)
	}
}

// commit commits what was changed, or a commit without pages.
func (o *logged) commit() {
	f := o.f
	f.Helper()
	e, err := o.m.Capture()
	f.must(err)
	c := objlog.Commit{
		Class: "C", ID: o.id, Base: o.head, CommitID: fmt.Sprintf("%s-%d", o.id, o.head.TXID+1), Epoch: 1,
		Post: o.head.Checksum, PageSize: o.head.PageSize, Pages: o.head.Pages, Snapshot: o.head.Checksum == 0,
	}
	if e != nil {
		defer e.Close()
		c.Post, c.PageSize, c.Pages = e.Post.Checksum, e.PageSize, e.Pages
		if e.Size > inlineLimit {
			c.Ref, c.Size = objlog.Ref(f.storeID, "C", o.id, c.TXID(), 1), e.Size
			f.must(f.blobs.Put(f.Context(), c.Ref, e.Open(), e.Size))
		} else {
			c.Data, err = io.ReadAll(e.Open())
			f.must(err)
		}
	}
	f.plan(c.Add)
	if e != nil {
		f.must(o.m.Confirm(e.Post))
	} else {
		f.must(o.m.Advance(c.TXID()))
	}
	o.head = c.Head()
}

// grow makes n commits: rows added and changed, some without pages, some
// offloaded.
func (o *logged) grow(n int) {
	o.exec(`CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b BLOB)`)
	for i := range n {
		switch i % 5 {
		case 1:
			o.exec(`UPDATE t SET b = ? WHERE a % 3 = 1`, o.f.noise(300))
		case 2:
			o.exec(`INSERT INTO t(b) VALUES (?)`, o.f.noise(90<<10))
		case 3:
		case 4:
			o.exec(`DELETE FROM t WHERE a % 4 = 1; VACUUM`)
		default:
			o.exec(`INSERT INTO t(b) VALUES (?), (?)`, o.f.noise(100), o.f.noise(2000))
		}
		o.commit()
	}
}

// small makes n small commits.
func (o *logged) small(n int) {
	o.exec(`CREATE TABLE IF NOT EXISTS n(v INTEGER)`)
	for i := range n {
		o.exec(`INSERT INTO n VALUES (?)`, i)
		o.commit()
	}
}

func (f *fixture) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.r.Uint32())
	}
	return b
}

func (f *fixture) keeper(cfg keeper.Config) *keeper.Keeper {
	cfg.StoreID, cfg.Dir, cfg.InlineLimit = f.storeID, f.TempDir(), inlineLimit
	return keeper.New(cfg, f.store, f.blobs, slog.New(slog.DiscardHandler))
}

// hold takes the lease of an object.
func (f *fixture) hold(id string, ttl time.Duration) lease.Held {
	f.Helper()
	p := kv.NewPlan()
	shown, err := lease.Attempt{Class: "C", ID: id, Holder: "holder-" + id, Replica: "r1", Event: lease.EventRequest, TTL: ttl, DeadlineMs: 1 << 60}.Add(p)
	f.must(err)
	v, err := f.store.Commit(f.Context(), p)
	f.must(err)
	i, _, err := lease.Read("C", id, v.Results[shown])
	f.must(err)
	return lease.Held{Class: "C", ID: id, Holder: i.Holder, Stamp: i.Stamp}
}

// alarm sets the alarm of an object so long from now.
func (f *fixture) alarm(id string, in time.Duration) {
	f.Helper()
	now, err := f.store.Now(f.Context())
	f.must(err)
	f.plan(func(p *kv.Plan) { alarm.AddSet(p, "C", id, now.Add(in)) })
}
