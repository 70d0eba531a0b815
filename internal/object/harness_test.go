package object

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/davidwkeith/dwk/internal/object/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faults stands between a runtime and its database. Each batch passes before
// and after; either may return an error in place of the answer.
type faults struct {
	kv.DB
	mu sync.Mutex
	// before and after may be nil. They see the statements of a batch.
	before, after hook
	trips         atomic.Int64
}

type hook = func(stmts []libsql.Statement) error

func (f *faults) setBefore(h hook) { f.mu.Lock(); defer f.mu.Unlock(); f.before = h }
func (f *faults) setAfter(h hook)  { f.mu.Lock(); defer f.mu.Unlock(); f.after = h }
func (f *faults) hooks() (before, after hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before, f.after
}

func (f *faults) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	f.trips.Add(1)
	before, after := f.hooks()
	if before != nil {
		if err := before(stmts); err != nil {
			return nil, err
		}
	}
	res, err := f.DB.Batch(ctx, mode, stmts...)
	if err == nil && after != nil {
		if err := after(stmts); err != nil {
			return nil, err
		}
	}
	return res, err
}

func (f *faults) Stream(ctx context.Context, s libsql.Statement) iter.Seq2[libsql.Row, error] {
	f.trips.Add(1)
	return f.DB.Stream(ctx, s)
}

// lost is the error of a batch whose answer did not arrive.
func lost() error {
	return &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindUnreachable, Statement: -1, Err: io.ErrUnexpectedEOF}
}

// isAcquire, isCommit and isRelease tell batches apart by their statements.
func isAcquire(stmts []libsql.Statement) bool { return mentions(stmts, "$.acquired_at") }
func isCommit(stmts []libsql.Statement) bool  { return mentions(stmts, "INSERT INTO obj_log") }
func isRelease(stmts []libsql.Statement) bool { return mentions(stmts, "RETURNING 1") }

func mentions(stmts []libsql.Statement, text string) bool {
	for _, s := range stmts {
		if strings.Contains(s.SQL, text) {
			return true
		}
	}
	return false
}

// A fleet is a store and the runtimes on it.
type fleet struct {
	t     *testing.T
	place libsqltest.Place
	db    *libsql.DB
	files *dir.Bucket
}

func newFleet(t *testing.T) *fleet { t.Helper(); return newFleetAt(t, libsqltest.File(t)) }

func newFleetAt(t *testing.T, place libsqltest.Place) *fleet {
	t.Helper()
	files, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	f := &fleet{t: t, place: place, db: place.Open(t), files: files}
	if err := kv.New(f.db).Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	return f
}

// eachFleet runs a test on an embedded store and over the wire.
func eachFleet(t *testing.T, test func(t *testing.T, f *fleet)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(t, newFleetAt(t, place(t))) })
	}
}

func (f *fleet) open() *libsql.DB { return f.place.Open(f.t) }

// testBlobs are the files of object logs in a bucket.
type testBlobs struct{ b *dir.Bucket }

func (b testBlobs) Put(ctx context.Context, ref string, r io.Reader, _ int64) error {
	_, err := b.b.Put(ctx, ref, r, durable.PutOptions{IfAbsent: true})
	return err
}

func (b testBlobs) Get(ctx context.Context, ref string) (io.ReadCloser, error) {
	body, _, err := b.b.Get(ctx, ref, durable.GetOptions{})
	return body, err
}

func (b testBlobs) Delete(ctx context.Context, ref string) error { return b.b.Delete(ctx, ref) }

func (b testBlobs) List(ctx context.Context, prefix, cursor string) (refs []string, next string, err error) {
	l, err := b.b.List(ctx, durable.ListOptions{Prefix: prefix, Cursor: cursor})
	for _, o := range l.Objects {
		refs = append(refs, o.Key)
	}
	return refs, l.Cursor, err
}

// A member is one runtime of a fleet.
type member struct {
	*Runtime
	faults *faults
	store  *kv.Store
	dir    string
}

// testConfig has times that nothing waits for, and that a machine which stands
// still for some seconds does not reach.
func testConfig(t testing.TB, replica string) Config {
	return Config{
		Replica: replica, Dir: t.TempDir(),
		LeaseTTL: 20 * time.Second, AcquireTimeout: 30 * time.Second, EventTimeout: time.Minute,
		Waiters: 64, BodyLimit: 1 << 20, Buffer: 1 << 16, Spool: 1 << 20, Idle: time.Minute, Resident: 100, Memory: 1 << 30,
		Mirror:  mirror.Config{},
		StoreID: "test", InlineLimit: 64 << 10,
		Sockets: socket.Config{Max: 1000, MessageLimit: 64 << 10, QueueLimit: 256 << 10, Ping: time.Minute, Timeout: 10 * time.Second}, HoldTTL: 5 * time.Minute,
	}
}

// testTTL is short, for takeovers to be quick.
const testTTL = 2 * time.Second

// shortTTL is for tests in which a lease ends or is renewed.
func shortTTL(c *Config) { c.LeaseTTL = testTTL }

// join adds a runtime with the test classes.
func (f *fleet) join(replica string, change ...func(*Config)) *member {
	f.t.Helper()
	m := &member{faults: &faults{DB: f.open()}}
	m.store = kv.New(m.faults)
	cfg := testConfig(f.t, replica)
	cfg.Blobs = testBlobs{f.files}
	for _, c := range change {
		c(&cfg)
	}
	m.dir = cfg.Dir
	if _, err := m.store.Now(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	m.Runtime = New(cfg, m.store, slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})))
	for name, class := range testClasses {
		if err := m.Register(name, Class{New: class, Env: testEnv{rt: m.Runtime}}); err != nil {
			f.t.Fatal(err)
		}
	}
	f.t.Cleanup(func() { m.stop(f.t) })
	return m
}

func (m *member) stop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

type testEnv struct {
	durable.Env
	rt *Runtime
}

func (e testEnv) Namespace(class string) durable.Namespace { return e.rt.Namespace(class) }
func (e testEnv) BaseURL() *url.URL                        { return &url.URL{Scheme: "https", Host: "test.example"} }
func (e testEnv) Background(work func(context.Context))    { e.rt.Background(work) }

// funcObject is an object whose handler is chosen by the request's path.
type funcObject struct {
	state durable.State
	env   durable.Env
	// seen counts the events of this instance.
	seen int
}

// handlers are the handlers of the class Func, by path. Tests add their own.
type handlers map[string]func(o *funcObject, w http.ResponseWriter, r *http.Request)

type handlersKey struct{}

func (o *funcObject) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.seen++
	if h, ok := r.Context().Value(handlersKey{}).(handlers); ok && h[r.URL.Path] != nil {
		h[r.URL.Path](o, w, r)
		return
	}
	switch r.URL.Path {
	case "/add":
		if _, err := o.state.SQL().Exec(r.Context(), `UPDATE n SET v = v + 1`); err != nil {
			panic(err)
		}
		fallthrough
	case "/get":
		for row, err := range o.state.SQL().Query(r.Context(), `SELECT v FROM n`) {
			if err != nil {
				panic(err)
			}
			fmt.Fprint(w, row.Values[0])
		}
	default:
		http.NotFound(w, r)
	}
}

var testClasses = map[string]durable.Class{
	"Counter": func(s durable.State, e durable.Env) (durable.Object, error) {
		_, err := s.SQL().Exec(context.Background(), `CREATE TABLE IF NOT EXISTS n(v INTEGER); INSERT INTO n SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM n)`)
		return &funcObject{state: s, env: e}, err
	},
}

// do sends one request to the object of class Counter with this name.
func (m *member) do(t *testing.T, name, path string, h handlers) *httptest.ResponseRecorder {
	t.Helper()
	return m.doContext(t.Context(), name, path, h)
}

// doContext is do with a context. An aborted connection has the code 0.
func (m *member) doContext(ctx context.Context, name, path string, h handlers) *httptest.ResponseRecorder {
	return m.doClass(ctx, "Counter", name, path, h)
}

func (m *member) doClass(ctx context.Context, class, name, path string, h handlers) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				panic(v)
			}
			w.Code = 0
		}
	}()
	r := httptest.NewRequestWithContext(context.WithValue(ctx, handlersKey{}, h), "POST", "http://test"+path, nil)
	ns := m.Namespace(class)
	ns.Get(ns.ID(name)).ServeHTTP(w, r)
	return w
}

// value reads a counter and fails the test unless it is answered.
func (m *member) value(t *testing.T, name string) int {
	t.Helper()
	w := m.do(t, name, "/get", nil)
	n, err := strconv.Atoi(w.Body.String())
	if w.Code != 200 || err != nil {
		t.Fatalf("get %s: %d %s", name, w.Code, w.Body)
	}
	return n
}

// leases returns the number of live leases, and of whatever else is stored but
// the entries of sockets.
func (f *fleet) leases() int {
	f.t.Helper()
	res, err := f.db.Batch(f.t.Context(), libsql.Read, libsql.S(`SELECT count(*) FROM kv WHERE NOT (k >= x'0264776b5f736f636b657400' AND k < x'0264776b5f736f636b657401') AND `+kv.Live))
	if err != nil {
		f.t.Fatal(err)
	}
	return int(res[0].Rows[0][0].(int64))
}

// eventually polls until ok, and fails the test when that takes too long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func (f *fleet) store() *kv.Store { return kv.New(f.db) }

// holdLease takes an object's lease for a replica that does not exist.
func (f *fleet) holdLease(name, replica string) {
	f.t.Helper()
	f.holdClass("Counter", name, replica, testTTL)
}

func (f *fleet) holdClass(class, name, replica string, ttl time.Duration) {
	f.t.Helper()
	p := kv.NewPlan()
	if _, err := (lease.Attempt{Class: class, ID: durable.IDFromName(name).String(), Holder: "h-" + replica, Replica: replica,
		Event: lease.EventRequest, TTL: ttl, DeadlineMs: time.Now().Add(time.Hour).UnixMilli()}).Add(p); err != nil {
		f.t.Fatal(err)
	}
	if v, err := f.store().Commit(f.t.Context(), p); err != nil || !v.OK {
		f.t.Fatalf("hold the lease: %+v %v", v, err)
	}
}

// queued is the number of events that wait behind running ones.
func (m *member) queued() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	total := 0
	for _, a := range m.actors {
		total += len(a.queue)
	}
	return total
}

// waitQueued waits until n events wait behind the running one.
func (m *member) waitQueued(t *testing.T, n int) {
	t.Helper()
	eventually(t, "events queued", func() bool { return m.queued() == n })
}
