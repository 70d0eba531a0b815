package cron

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/kvtest"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is one store set, on which any number of replicas may work.
type fixture struct {
	kvtest.Fixture
	t  testing.TB
	db *libsql.DB
	s  *kv.Store
}

func newFixture(t testing.TB, open func(testing.TB) libsqltest.Place) *fixture {
	t.Helper()
	return withinAnHour(t, kvtest.New(t, open))
}

func eachPlace(t *testing.T, test func(t *testing.T, f *fixture)) {
	kvtest.Each(t, func(t *testing.T, f kvtest.Fixture) { test(t, withinAnHour(t, f)) })
}

// withinAnHour waits for the next half hour when this one is nearly over: the
// schedules of the tests occur by the hour, and none may occur during a test.
func withinAnHour(t testing.TB, k kvtest.Fixture) *fixture {
	t.Helper()
	f := &fixture{k, t, k.DB, k.S}
	const half, enough = 1_800_000, 20_000
	if left := half - f.NowMs()%half; left < enough {
		time.Sleep(time.Duration(left+100) * time.Millisecond)
	}
	return f
}

// set stores a value under a key for ever.
func (f *fixture) set(value any, k ...any) {
	f.t.Helper()
	if _, err := f.s.Set(f.t.Context(), k, value, 0); err != nil {
		f.t.Fatal(err)
	}
}

// get returns the value of a key, nil without it.
func (f *fixture) get(k ...any) map[string]any {
	f.t.Helper()
	e, ok, err := f.s.Get(f.t.Context(), k)
	if err != nil {
		f.t.Fatal(err)
	}
	if !ok {
		return nil
	}
	var v map[string]any
	if err := json.Unmarshal(e.Value, &v); err != nil {
		f.t.Fatal(err)
	}
	return v
}

// clear removes all entries with a prefix.
func (f *fixture) clear(prefix string) {
	f.t.Helper()
	lo := tuple.MustEncode(prefix)
	f.SQL(`DELETE FROM kv WHERE k >= ? AND k < ?`, lo, tuple.RangeEnd(lo))
}

// A line is a run of the history, oldest first.
type line struct {
	at, n   int64
	outcome string
}

func (f *fixture) history(name string) (list []line) {
	f.t.Helper()
	for e, err := range f.s.List(f.t.Context(), kv.ListOptions{Prefix: tuple.Key{PrefixRun, name}}) {
		if err != nil {
			f.t.Fatal(err)
		}
		var v struct{ Outcome string }
		if err := json.Unmarshal(e.Value, &v); err != nil {
			f.t.Fatal(err)
		}
		list = append(list, line{int64(e.Key[2].(float64)), int64(e.Key[3].(float64)), v.Outcome})
	}
	return list
}

// outcomes are those of the history, oldest first.
func (f *fixture) outcomes(name string) (list []string) {
	for _, l := range f.history(name) {
		list = append(list, l.outcome)
	}
	return list
}

// A replica polls for its runner as a host does.
type replica struct {
	*Runner
	f    *fixture
	wake chan struct{}
	// fault, when not nil, says what happens to the next poll.
	fault kvtest.Fault
	// next is what WakeAt was told last.
	next time.Time
	// changed counts the rows that the last poll has changed.
	changed int64
	stop    context.CancelFunc
	done    chan struct{}

	mu   sync.Mutex
	runs []durable.Occurrence
}

const ttl = 20 * time.Second

func (f *fixture) replica() *replica {
	r := &replica{f: f, wake: make(chan struct{}, 1), done: make(chan struct{})}
	wake := func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	g := kv.NewGroup(f.s)
	f.t.Cleanup(g.Wait)
	r.Runner = NewRunner(Config{Replica: uuid.NewString(), Store: f.s, Commits: g, TTL: ttl, Wake: wake, WakeAt: func(at time.Time) {
		r.next = at
	}}, slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	f.t.Cleanup(func() {
		if err := r.Stop(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	return r
}

// options are those of a schedule that occurs when a test says so: it sets the
// clock back.
func options(more ...func(*Options)) Options {
	o := Options{Schedule: "@every 1h", Zone: "UTC", CatchUp: time.Hour, Timeout: time.Minute}
	for _, f := range more {
		f(&o)
	}
	return o
}

// add adds a schedule; fn may be nil.
func (r *replica) add(name string, o Options, fn func(context.Context, durable.Occurrence) error) *replica {
	r.f.t.Helper()
	err := r.Add(name, o, nil, func(ctx context.Context, _ durable.Env, at durable.Occurrence) error {
		r.mu.Lock()
		r.runs = append(r.runs, at)
		r.mu.Unlock()
		if fn == nil {
			return nil
		}
		return fn(ctx, at)
	})
	if err != nil {
		r.f.t.Fatal(err)
	}
	return r
}

func (r *replica) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

func (r *replica) poll() (again bool) {
	fault := r.fault != nil
	res, again, err := r.f.Poll(r, &r.fault)
	if err != nil && !fault {
		r.f.t.Errorf("poll: %v", err)
	}
	r.changed = 0
	for _, s := range res {
		r.changed += s.Changes
	}
	return again
}

// polls polls until nothing more is to be done at once, twice: the first poll
// sees what a test has changed.
func (r *replica) polls() {
	for range 2 {
		for r.poll() {
		}
	}
}

// rest waits until nothing runs here.
func (r *replica) rest() {
	r.f.t.Helper()
	r.f.Eventually("the end of all runs", func() bool {
		r.Runner.mu.Lock()
		defer r.Runner.mu.Unlock()
		return r.Runner.runs == 0 && !slices.ContainsFunc(r.jobs, func(j *job) bool { return len(j.runs) > j.stuck })
	})
}

// hours lets so many hours pass for a schedule: it was last run before them.
func (f *fixture) hours(name string, n int64) {
	f.t.Helper()
	f.SQL(`UPDATE kv SET v = json_set(v, '$.since', ?, '$.bucket', coalesce(json_extract(v, '$.bucket'), 0) - ?) WHERE k = ?`, f.hour(-n), n*3_600_000, tuple.MustEncode(PrefixLast, name))
}

// hour is the hour that began n hours after the present one.
func (f *fixture) hour(n int64) int64 { return (f.NowMs()/3_600_000 + n) * 3_600_000 }
