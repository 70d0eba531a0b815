package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// patience bounds every wait for what happens by itself.
const patience = 90 * time.Second

// A world is the fleet of one seed, its stores and what is between them.
type world struct {
	*guard
	plan  Plan
	fleet *fleettest.Fleet
	// lab is the server of the lab's own database; that of the fleet is the
	// fleet's.
	lab *fleettest.Server
	// store is the coordination database, by a way of the harness's own.
	store   *kv.Store
	objects s3.Config
	slots   [slots]*slot
	client  *http.Client
	web     *http.Server

	// storeFault is what befalls the next request to the object store.
	storeFault atomic.Pointer[func() storeFault]
	fault      present

	mu     sync.Mutex
	record *figures.Robustness
	holds  []*hold
	ended  []*fleettest.Replica // those that were ended on purpose
	names  atomic.Int64

	seen   sights
	drains drains
	stage  *stage
	// wg are calls that nobody waits for before the end.
	wg sync.WaitGroup
}

// A slot is the place of a replica; when one is gone another gets its place.
type slot struct {
	n             int
	sql, lab, obj *pipe
	disk          string

	// busy is held by the step that befalls its replica.
	busy sync.Mutex

	mu      sync.Mutex
	replica *fleettest.Replica
	// open is false while clients should not be sent to it.
	open bool
}

func (s *slot) get() (*fleettest.Replica, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replica, s.open
}

func (s *slot) put(r *fleettest.Replica, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replica, s.open = r, open
}

// A storeFault is what happens to a request to the object store.
type storeFault int

const (
	noFault storeFault = iota
	busy               // 503, and nothing is done
	many               // 429, and nothing is done
	lost               // it is done, and the connection is cut
)

// present names the faults that there are.
type present struct {
	mu   sync.Mutex
	list []string
}

const calm = "none"

func (p *present) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, name)
}

func (p *present) end(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, n := range p.list {
		if n == name {
			p.list = append(p.list[:i:i], p.list[i+1:]...)
			return
		}
	}
}

// now is the name of the last fault that began and has not ended.
func (p *present) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return calm
	}
	return p.list[len(p.list)-1]
}

// inlineLimit is that of the configuration.
const inlineLimit = 16 << 10

// config is what differs from fleettest's configuration: short times, so that
// much happens in a short time.
const config = `object_store: {timeout: 3s}
event: {timeout: 10s}
objects: {inline_limit: 16KiB}
alarms: {backoff: 50ms, retries: 14}
fleet: {poll_interval: 250ms}
queues: [{name: default, batch: 10, concurrency: 2, visibility: 2s, backoff: 50ms, max_attempts: 8}]
crons: [{app: lab, name: every-five, schedule: "@every 1s"}]
`

func newWorld(g *guard, plan Plan, program string, rec *figures.Robustness) *world {
	w := &world{guard: g, plan: plan, record: rec}
	w.seen.list, w.seen.answers, w.seen.calls = map[string][]sight{}, map[int]int{}, map[string]int{}
	w.drains.since = map[*fleettest.Replica]int64{}
	w.stage = newStage(w)
	w.fleet = fleettest.New(g, fleettest.Wire, "DWK_LEASE_TTL="+plan.TTL.String(), "DWK_LEASE_ACQUIRE_TIMEOUT=3s",
		"DWK_DRAIN_GRACE=300ms", "DWK_LIBSQL_TIMEOUT=2s", "DWK_LOG_LEVEL=info")
	w.fleet.Program = program
	w.fleet.Configure(config)
	w.lab = fleettest.StartServer(g, hrana.Config{Path: filepath.Join(w.fleet.Dir, "server", "lab.db")})
	db, err := libsql.Open(libsql.Config{URL: w.fleet.Server.URL, Timeout: time.Minute})
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { db.Close() }) //nolint:errcheck // nothing is left to write
	w.store = kv.New(db)
	w.client = &http.Client{
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		Timeout:   40 * time.Second,
	}
	g.Cleanup(w.client.CloseIdleConnections)
	var access, secret string
	w.objects, access, secret = fleettest.Gateway(g)
	w.startFront()
	for i := range w.slots {
		s := &slot{n: i}
		w.slots[i] = s
		s.sql, s.lab, s.obj = w.pipe(host(w.fleet.Server.URL)), w.pipe(host(w.lab.URL)), w.pipe(w.web.Addr)
	}
	w.fleet.Env = append(w.fleet.Env, fleettest.ObjectEnv(w.objects, access, secret)...)
	return w
}

func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}

func (w *world) pipe(target string) *pipe {
	p, err := newPipe(target)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.close)
	return p
}

// startFront starts what passes requests on to the object store.
func (w *world) startFront() {
	target, err := url.Parse(w.objects.URL)
	if err != nil {
		w.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:    &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	w.web = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f := noFault
		if choose := w.storeFault.Load(); choose != nil {
			f = (*choose)()
		}
		switch f {
		case busy:
			storeError(rw, http.StatusServiceUnavailable, "SlowDown")
		case many:
			storeError(rw, http.StatusTooManyRequests, "TooManyRequests")
		case lost:
			proxy.ServeHTTP(&sink{header: http.Header{}}, r)
			panic(http.ErrAbortHandler)
		default:
			proxy.ServeHTTP(rw, r)
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.web.Addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.web.Serve(l) //nolint:errcheck // it is closed
	}()
	w.Cleanup(func() {
		w.web.Close() //nolint:errcheck // it is gone
		<-done
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
}

func storeError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	io.WriteString(w, "<Error><Code>"+code+"</Code><Message>as the schedule wants it</Message></Error>") //nolint:errcheck // to a client
}

// A sink takes an answer that nobody gets.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// join starts a replica in a slot and waits until it is ready. One that finds a
// store in trouble ends at its start, as it should, and is started again.
func (w *world) join(s *slot, shift time.Duration) {
	env := []string{
		"DWK_LIBSQL_URL=http://" + s.sql.addr, "DWK_DATABASE_LAB_DB_URL=http://" + s.lab.addr,
		"DWK_OBJECT_STORE_URL=" + strings.Replace(w.objects.URL, host(w.objects.URL), s.obj.addr, 1),
	}
	if shift != 0 {
		env = append(env, "DWK_CLOCK_SHIFT="+shift.String())
	}
	if s.disk != "" {
		env = append(env, "DWK_REPLICA_DIR="+s.disk)
	}
	deadline := time.Now().Add(patience)
	for {
		r := w.launch(env)
		for !r.Ready() {
			if w.ctx.Err() != nil || time.Now().After(deadline) {
				w.Fatalf("replica %s in place %d is not ready within %v", r.Name, s.n+1, patience)
			}
			if r.Exited() {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !r.Exited() {
			s.put(r, true)
			return
		}
		w.end(r)
		w.Logf("%s ended at its start with %d, and is started again", r.Name, r.ExitCode())
		time.Sleep(200 * time.Millisecond)
	}
}

func (w *world) launch(env []string) *fleettest.Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fleet.Launch(env...)
}

// end notes that a replica is ended on purpose.
func (w *world) end(r *fleettest.Replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, r)
}

// pick returns a slot that clients may be sent to, any if there is none. One that
// is cut off is seldom picked: clients would wait for nothing else.
func (w *world) pick(r *rand.Rand) *slot {
	first := r.IntN(slots)
	for i := range slots {
		s := w.slots[(first+i)%slots]
		if _, open := s.get(); open && (s.sql.passes() || r.IntN(8) == 0) {
			return s
		}
	}
	return w.slots[first]
}

// name returns a name that no other object has.
func (w *world) name(prefix string) string { return fmt.Sprintf("%s-%d", prefix, w.names.Add(1)) }

// note changes the record.
func (w *world) note(f func(*figures.Robustness)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.record)
}

// violate notes that a promise was broken. When the time of the run is over nothing is: calls end without an answer
// then.
func (w *world) violate(promise, check, object, format string, args ...any) {
	w.violateAnd(func(*figures.Robustness) {}, promise, check, object, format, args...)
}

func (w *world) violateAnd(count func(*figures.Robustness), promise, check, object, format string, args ...any) {
	v := figures.Violation{Promise: promise, Check: check, Object: object, Detail: fmt.Sprintf(format, args...)}
	if w.ctx.Err() != nil {
		w.Logf("too late to tell: %+v", v)
		return
	}
	w.note(func(r *figures.Robustness) { r.Violations = append(r.Violations, v); count(r) })
	w.Logf("VIOLATION %s, %s: %s: %s", v.Promise, v.Check, v.Object, v.Detail)
}

// sleep waits, unless the run is over before.
func (w *world) sleep(d time.Duration) bool { return sleep(w.ctx, d) }

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// crashes reports replicas that ended by themselves.
func (w *world) crashes() {
	for _, s := range w.slots {
		r, _ := s.get()
		if r == nil || !r.Exited() {
			continue
		}
		w.mu.Lock()
		meant := false
		for _, e := range w.ended {
			meant = meant || e == r
		}
		w.mu.Unlock()
		if !meant {
			w.violate("nothing stops in silence", "crash", r.Name, "it ended by itself with %d: %s", r.ExitCode(), lastLines(r.Log()))
		}
	}
}

func lastLines(log string) string {
	const keep = 800
	log = strings.TrimSpace(log)
	return log[max(0, len(log)-keep):]
}

// smallDisk mounts a small file system for a slot, where that is allowed.
func (w *world) smallDisk(s *slot) bool {
	dir := w.TempDir()
	if os.Geteuid() != 0 || mountSmall(dir) != nil {
		return false
	}
	w.Cleanup(func() { unmount(dir) })
	s.disk = dir
	return true
}
