package objectops

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const storeID = "5d1c"

// faults stands between the operations and their stores. Each batch passes
// before and after, each file afterPut; any may return an error in place of the
// answer.
type faults struct {
	kv.DB
	mu            sync.Mutex
	before, after func(stmts []libsql.Statement) error
}

func (f *faults) hooks() (before, after func([]libsql.Statement) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before, f.after
}

func (f *faults) set(before, after func([]libsql.Statement) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *faults) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	before, after := f.hooks()
	if before != nil {
		if err := before(stmts); err != nil {
			return nil, err
		}
	}
	res, err := f.DB.Batch(ctx, mode, stmts...)
	if err == nil && after != nil {
		err = after(stmts)
	}
	if err != nil {
		return nil, err
	}
	return res, nil
}

// lost is the error of a batch whose answer did not arrive.
func lost() error {
	return &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindUnreachable, Statement: -1, Err: io.ErrUnexpectedEOF}
}

// files are a bucket, which may fail.
type files struct {
	*dir.Bucket
	mu  sync.Mutex
	put func() error // behind each put
}

func (f *files) Put(ctx context.Context, ref string, r io.Reader, _ int64) error {
	_, err := f.Bucket.Put(ctx, ref, r, durable.PutOptions{IfAbsent: true})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.put != nil {
		err = f.put()
	}
	return err
}

func (f *files) Get(ctx context.Context, ref string) (io.ReadCloser, error) {
	body, _, err := f.Bucket.Get(ctx, ref, durable.GetOptions{})
	return body, err
}

func (f *files) List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error) {
	page, err := f.Bucket.List(ctx, durable.ListOptions{Prefix: prefix, Cursor: cursor})
	for _, o := range page.Objects {
		refs = append(refs, o.Key)
	}
	return refs, page.Cursor, err
}

// A fixture is a store set and the operations on it.
type fixture struct {
	*testing.T
	*Ops
	db     *libsql.DB
	plain  *kv.Store // past the faults
	faults *faults
	files  *files
	r      *rand.Rand
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
	f := &fixture{T: t, db: db, plain: kv.New(db), faults: &faults{DB: db}, files: &files{Bucket: b}, r: rand.New(rand.NewPCG(1, 2))}
	f.must(f.plain.Init(t.Context(), objlog.Schema...))
	f.Ops = New(Config{
		Store: kv.New(f.faults), Blobs: f.files, StoreID: storeID, Dir: t.TempDir(), LeaseTTL: 10 * time.Second, InlineLimit: 64 << 10,
	})
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

// An object is a log under construction, and what it was at each commit.
type object struct {
	f    *fixture
	id   string
	m    *mirror.Mirror
	head objlog.Head
	was  map[uint64][32]byte
}

func (f *fixture) object(id string, cfg mirror.Config) *object {
	o := &object{f: f, id: id, m: mirror.New(filepath.Join(f.TempDir(), "object.db"), cfg), was: map[uint64][32]byte{}}
	f.Cleanup(func() { o.m.Discard() })
	return o
}

func (o *object) exec(query string, args ...any) {
	o.f.Helper()
	if _, err := o.m.Exec(o.f.Context(), query, args...); err != nil {
		o.f.Fatalf("%s: %v", query, err)
	}
}

// commit commits what was changed, or a commit without pages.
func (o *object) commit() {
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
		if e.Size > 64<<10 {
			c.Ref, c.Size = objlog.Ref(storeID, "C", o.id, c.TXID(), 1), e.Size
			f.must(f.files.Put(f.Context(), c.Ref, e.Open(), e.Size))
		} else {
			c.Data, err = io.ReadAll(e.Open())
			f.must(err)
		}
	}
	p := kv.NewPlan()
	c.Add(p)
	v, err := f.plain.Commit(f.Context(), p)
	f.must(err)
	if !v.OK {
		f.Fatal("commit refused")
	}
	if e != nil {
		f.must(o.m.Confirm(e.Post))
	} else {
		f.must(o.m.Advance(c.TXID()))
	}
	o.head = c.Head()
	o.was[c.TXID()] = f.sum(o.m.Export)
}

// grow makes a log of n commits: rows added, changed and removed, one commit
// with no pages, one that is offloaded.
func (o *object) grow(n int) {
	o.exec(`CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b BLOB); CREATE INDEX IF NOT EXISTS i ON t(b)`)
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

func (f *fixture) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.r.Uint32())
	}
	return b
}

// sum is the hash of what write writes.
func (f *fixture) sum(write func(io.Writer) error) (sum [32]byte) {
	f.Helper()
	h := sha256.New()
	f.must(write(h))
	h.Sum(sum[:0])
	return sum
}

// stored is what the log says that the object is, at the head when txid is 0.
func (f *fixture) stored(id string, txid uint64) [32]byte {
	f.Helper()
	d, err := New(Config{Store: f.plain, Blobs: f.files, Dir: f.TempDir()}).Open(f.Context(), "C", id, Target{TXID: txid})
	f.must(err)
	defer d.Close()
	return f.sum(d.mirror.Export)
}

func (f *fixture) headOf(id string) objlog.Head {
	f.Helper()
	h, err := New(Config{Store: f.plain}).Head(f.Context(), "C", id)
	f.must(err)
	return h
}

// open opens a state of an object.
func (f *fixture) open(id string, t Target) *Database {
	f.Helper()
	d, err := f.Ops.Open(f.Context(), "C", id, t)
	f.must(err)
	f.Cleanup(func() { d.Close() })
	return d
}

// idle fails when somebody holds a lease, or a temporary file was left.
func (f *fixture) idle() {
	f.Helper()
	for i, err := range lease.List(f.Context(), f.plain, "") {
		f.Errorf("a lease is left: %+v %v", i, err)
	}
}

func (f *fixture) clean() {
	f.Helper()
	if left, err := os.ReadDir(f.Dir); err != nil || len(left) > 0 {
		f.Errorf("left in %s: %v %v", f.Dir, left, err)
	}
}

// hold takes the lease of an object for somebody else.
func (f *fixture) hold(id string, ttl time.Duration) lease.Held {
	f.Helper()
	p := kv.NewPlan()
	show, err := lease.Attempt{Class: "C", ID: id, Holder: "other", Replica: "r1", Event: lease.EventRequest, TTL: ttl, DeadlineMs: 1 << 60, GivenUp: f.holders(id)}.Add(p)
	f.must(err)
	v, err := f.plain.Commit(f.Context(), p)
	f.must(err)
	i, ok, err := lease.Read("C", id, v.Results[show])
	f.must(err)
	if !ok || !v.OK {
		f.Fatal("the lease was not taken")
	}
	return lease.Held{Class: "C", ID: id, Holder: i.Holder, Stamp: i.Stamp}
}

func (f *fixture) holders(id string) []string {
	i, ok, err := lease.Inspect(f.Context(), f.plain, "C", id)
	f.must(err)
	if !ok {
		return nil
	}
	return []string{i.Holder}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}
