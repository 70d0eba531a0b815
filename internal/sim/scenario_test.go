package sim

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object"
	"github.com/davidwkeith/dwk/internal/object/socket"
	"github.com/davidwkeith/dwk/internal/queue"
)

const (
	ttl        = 2 * time.Second
	visibility = 3 * time.Second
	queueName  = "work"
)

// maxCrashes is how many replicas die in a scenario.
const maxCrashes = 6

// A profile is what may go wrong in a scenario, with the chance of each batch.
type profile struct {
	name string
	// replicas there are, and objects. With one object that is "c", whose
	// operations are all alike.
	replicas, objects                int
	lose, double, refuse, fail, late float64
	// clock has the primary's clock jump, crash replicas die, and operator leases
	// be released.
	clock, crash, operator bool
	// hasty has the sender know at once of what is lost.
	hasty bool
	// busy has more clients, which hardly pause, and slow has fewer, which do.
	busy, slow bool
	// local has plans share transactions more often.
	local bool
}

// calm reports whether nothing goes wrong.
func (p profile) calm() bool {
	return p.lose+p.double+p.refuse+p.fail+p.late == 0 && !p.clock && !p.crash && !p.operator
}

// exact reports whether alarms and messages count nothing but what failed by
// itself: no claim ends before its time, and none is another replica's to take.
func (p profile) exact() bool {
	return p.late == 0 && p.double == 0 && !p.clock && !p.crash && !p.operator && (p.replicas == 1 && p.hasty || p.lose == 0)
}

var profiles = []profile{
	{name: "calm", replicas: 2, objects: 4},
	{name: "lossy", replicas: 2, objects: 4, lose: 0.08, double: 0.05},
	{name: "alone", replicas: 1, objects: 4, lose: 0.2, refuse: 0.02, hasty: true},
	{name: "twins", replicas: 2, objects: 1, lose: 0.15, slow: true},
	{name: "twins", replicas: 2, objects: 1, lose: 0.3, slow: true},
	{name: "failing", replicas: 1, objects: 4, fail: 0.15, refuse: 0.1, local: true, busy: true},
	{name: "late", replicas: 2, objects: 3, late: 0.1, lose: 0.03},
	{name: "clock", replicas: 2, objects: 2, clock: true, late: 0.02},
	{name: "operator", replicas: 2, objects: 2, operator: true, double: 0.03},
	{name: "crash", replicas: 3, objects: 4, crash: true},
	{name: "crash", replicas: 2, objects: 3, crash: true},
	{name: "storm", replicas: 3, objects: 4, lose: 0.05, double: 0.05, refuse: 0.02, fail: 0.02, late: 0.05, clock: true, crash: true, operator: true},
	{name: "storm, local", replicas: 2, objects: 2, lose: 0.05, double: 0.05, refuse: 0.02, fail: 0.02, late: 0.05, clock: true, crash: true, operator: true, local: true},
}

// A scenario is one run of a seed.
type scenario struct {
	t       *testing.T
	seed    uint64
	profile profile
	primary *primary
	dir     string
	began   time.Time
	objects []string
	names   map[string]string // by id

	// hostile is set while things go wrong.
	hostile atomic.Bool
	// flying are batches that are under way, and dying what is left of dead
	// replicas.
	flying, dying sync.WaitGroup
	// joining are replicas that take the place of dead ones.
	joining sync.WaitGroup
	ctx     context.Context

	mu      sync.Mutex
	rng     *rand.Rand // of the order of members
	seq     int64      // numbers moments in the order of real time
	members []*member
	next    int // number of the next replica
	crashes int
	ops     []*op
	alarms  map[string][]*alarmRun
	mails   map[string][]*delivery
	trace   []string
	broken  []string
}

// moment returns the number of this moment.
func (s *scenario) moment() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	return s.seq
}

// wrong notes what must not be.
func (s *scenario) wrong(what ...string) {
	if len(what) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range what {
		s.broken = append(s.broken, w)
		s.trace = append(s.trace, fmt.Sprintf("%9.3f WRONG: %s", time.Since(s.began).Seconds(), w))
	}
}

// note adds what became of a batch to the trace.
func (s *scenario) note(replica string, stmts []libsql.Statement, what string) {
	s.tell("%s: %s: %s", replica, kind(stmts), what)
}

func (s *scenario) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf("%9.3f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// A member is one replica.
type member struct {
	s         *scenario
	id        string
	rt        *object.Runtime
	wire      *wire
	poller    *fleet.Poller
	consumers *queue.Consumers
}

// join adds a replica.
func (s *scenario) join() *member {
	s.mu.Lock()
	s.next++
	id := "r" + strconv.Itoa(s.next)
	s.mu.Unlock()
	m := &member{s: s, id: id, wire: &wire{s: s, replica: id, gone: make(chan struct{}), rng: rand.New(rand.NewPCG(s.seed, uint64(len(id))<<32+uint64(s.next)))}}
	dir := filepath.Join(s.dir, id)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	store := kv.New(m.wire)
	for range 100 {
		if _, err := store.Now(s.ctx); err == nil {
			break
		}
	}
	log := slog.New(slog.DiscardHandler)
	wakeAt := func(t time.Time) {
		if m.poller != nil {
			m.poller.WakeAt(t)
		}
	}
	m.rt = object.New(object.Config{
		Replica: id, Dir: dir, LeaseTTL: ttl, Linger: []time.Duration{0, 200 * time.Millisecond, 20 * time.Second}[s.draw(3, "linger")], AcquireTimeout: 5 * time.Second, EventTimeout: 10 * time.Second,
		Waiters: 64, BodyLimit: 1 << 20, Buffer: 1 << 16, Spool: 1 << 20, Idle: time.Hour, Resident: 100, Memory: 1 << 30,
		StoreID: "sim", InlineLimit: 1 << 20, AlarmRetries: 5, AlarmBackoff: 300 * time.Millisecond, AlarmBatch: 8,
		Sockets: socket.Config{Max: 10, MessageLimit: 1 << 10, QueueLimit: 1 << 10, Ping: time.Hour, Timeout: time.Minute}, HoldTTL: time.Hour,
		WakeAt: wakeAt,
	}, store, log)
	m.poller = fleet.New(fleet.Config{Interval: time.Second}, store, log)
	m.consumers = queue.NewConsumers(queue.Config{Replica: id, Store: store, Commits: m.rt.Commits(), Wake: m.poller.Wake, WakeAt: m.poller.WakeAt}, log)
	e := outside{m: m}
	for _, class := range []string{eager, lazy} {
		if err := m.rt.Register(class, object.Class{New: newObject(class, env{m: m}), Env: e}); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := m.consumers.Consume(queueName, queue.QueueConfig{
		Batch: 3, Concurrency: 2, Visibility: visibility, MaxAttempts: 6, Backoff: 300 * time.Millisecond, DeadRetention: time.Hour,
	}, e, m.consume); err != nil {
		s.t.Fatal(err)
	}
	m.poller.Add(m.rt.Alarms(), m.consumers, &fleet.Sweep{Batch: 50, Log: log})
	_ = m.poller.Start(s.ctx)
	s.mu.Lock()
	s.members = append(s.members, m)
	s.mu.Unlock()
	s.tell("%s joins", id)
	return m
}

// outside is a replica's environment outside of objects.
type outside struct {
	durable.Env
	m *member
}

func (e outside) HTTPClient() *http.Client              { return &http.Client{Transport: e} }
func (e outside) Background(work func(context.Context)) { e.m.rt.Background(work) }
func (e outside) Namespace(class string) durable.Namespace {
	return e.m.rt.Namespace(class)
}

func (e outside) Queue(name string) durable.Queue {
	return &queue.Binding{Name: name, Commits: e.m.rt.Commits(), Sent: e.m.consumers.Sent}
}

// RoundTrip is the world outside: who reads there what an object lets out in
// the middle of an event.
func (e outside) RoundTrip(r *http.Request) (*http.Response, error) {
	if !e.m.wire.cut.Load() {
		e.m.s.observed(r.URL.Query())
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("")), Header: http.Header{}, Request: r}, nil
}

// mayCrash reports whether a replica may die, and counts it.
func (s *scenario) mayCrash(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.profile.crash || !s.hostile.Load() || s.crashes >= maxCrashes || m.wire.cut.Load() {
		return false
	}
	s.crashes++
	return true
}

// crashed is how many replicas have died.
func (s *scenario) crashed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.crashes
}

// crash ends a replica without a last word. What it has sent may arrive.
func (s *scenario) crash(m *member) {
	s.mu.Lock()
	for i, o := range s.members {
		if o == m {
			s.members = append(s.members[:i:i], s.members[i+1:]...)
		}
	}
	if m.wire.cut.Swap(true) {
		s.mu.Unlock()
		return
	}
	close(m.wire.gone)
	s.mu.Unlock()
	s.tell("%s dies", m.id)
	s.dying.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m.stop(ctx)
	})
	s.joining.Go(func() {
		time.Sleep(time.Duration(s.draw(3000, m.id)) * time.Millisecond)
		s.join()
	})
}

func (m *member) stop(ctx context.Context) {
	_ = m.poller.Stop(ctx)
	_ = m.consumers.Stop(ctx)
	_ = m.rt.Stop(ctx)
}

// pick returns a replica that lives, or nil.
func (s *scenario) pick(n int) *member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) == 0 {
		return nil
	}
	return s.members[n%len(s.members)]
}

func (s *scenario) name(id durable.ID) string { return s.names[id.String()] }

func classOf(name string) string {
	if name[0] == 'z' {
		return lazy
	}
	return eager
}

// send sends a request to an object and returns its answer. The code is 0 when
// the connection was cut.
func (m *member) send(ctx context.Context, name string, q url.Values) (code int, header http.Header, body string) {
	type reply struct {
		code   int
		header http.Header
		body   string
	}
	done := make(chan reply, 1)
	m.s.dying.Go(func() {
		w := httptest.NewRecorder()
		r := reply{}
		defer func() {
			if v := recover(); v != nil && v != http.ErrAbortHandler {
				panic(v)
			}
			done <- r
		}()
		ns := m.rt.Namespace(classOf(name))
		ns.Get(ns.ID(name)).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "http://sim/?"+q.Encode(), nil))
		r = reply{w.Code, w.Header(), w.Body.String()}
	})
	select {
	case r := <-done:
		if !m.wire.cut.Load() {
			return r.code, r.header, r.body
		}
	case <-m.wire.gone:
	}
	return 0, nil, ""
}
