package fleet_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/libsql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeStore answers every batch after a while, with what fail makes of it.
type fakeStore struct {
	takes time.Duration
	skew  time.Duration // of the estimate
	fail  func(sql []string) error

	mu      sync.Mutex
	batches [][]string
	at      []time.Time
	busy    bool
	overlap bool
}

func (s *fakeStore) Clock() time.Time { return time.Now().Add(s.skew) }

func (s *fakeStore) Write(ctx context.Context, stmts ...libsql.Statement) ([]libsql.Result, time.Time, error) {
	var sql []string
	for _, st := range stmts {
		sql = append(sql, st.SQL)
	}
	s.mu.Lock()
	s.overlap = s.overlap || s.busy
	s.busy = true
	s.batches, s.at = append(s.batches, sql), append(s.at, time.Now())
	s.mu.Unlock()
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if ctx.Err() != nil {
		return nil, time.Time{}, &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindTimeout, Err: ctx.Err()}
	}
	if s.fail != nil {
		if err := s.fail(sql); err != nil {
			return nil, time.Time{}, err
		}
	}
	res := make([]libsql.Result, len(sql))
	for i, q := range sql {
		res[i].Rows = []libsql.Row{{q}}
		if q == "change" {
			res[i].Changes = 1
		}
	}
	return res, time.Now(), nil
}

// sleep lets time pass, and then everybody get as far as they can.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *fakeStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.batches)
}

// part is a part of one statement.
type part struct {
	name, sql string
	again     func() bool

	bytes []int
	res   [][]libsql.Result
	errs  []error
}

func (p *part) Name() string { return p.name }
func (p *part) Poll(bytes int) []libsql.Statement {
	p.bytes = append(p.bytes, bytes)
	if p.sql == "" {
		return nil
	}
	return []libsql.Statement{libsql.S(p.sql)}
}
func (p *part) Polled(res []libsql.Result, err error, _ time.Time) bool {
	p.res, p.errs = append(p.res, res), append(p.errs, err)
	return p.again != nil && p.again()
}

func sqlError(outcome libsql.Outcome, kind libsql.Kind) error {
	return &libsql.Error{Outcome: outcome, Kind: kind, Statement: -1, Err: errors.New("made up")}
}

// poll runs a poller in a bubble of time and returns its store.
func poll(t *testing.T, s *fakeStore, cfg fleet.Config, parts []fleet.Part, during func(p *fleet.Poller)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := fleet.New(cfg, s, slog.New(slog.NewTextHandler(t.Output(), nil)))
		p.Add(parts...)
		p.Start(t.Context())
		during(p)
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		n := s.count()
		sleep(time.Minute)
		if s.count() != n {
			t.Error("polls after the stop")
		}
		if s.overlap {
			t.Error("polls overlapped")
		}
	})
}

func TestEveryPollIsOneBatch(t *testing.T) {
	s := &fakeStore{takes: 100 * time.Millisecond}
	a, b, idle := &part{name: "a", sql: "A"}, &part{name: "b", sql: "B"}, &part{name: "idle"}
	poll(t, s, fleet.Config{}, []fleet.Part{a, b, idle}, func(p *fleet.Poller) {
		sleep(time.Minute)
		if age := time.Since(p.LastOK()); age > 1500*time.Millisecond {
			t.Errorf("last success %v ago", age)
		}
	})
	if n := s.count(); n < 45 || n > 56 { // 1.1 s to 1.3 s each
		t.Errorf("%d polls in a minute", n)
	}
	for i, sql := range s.batches {
		if !slices.Equal(sql, []string{"A", "B"}) {
			t.Fatalf("poll %d: %v", i, sql)
		}
	}
	for _, p := range []*part{a, b} {
		if p.res[0][0].Rows[0][0] != p.sql || p.errs[0] != nil || p.bytes[0] != fleet.DefaultBudget/3 {
			t.Errorf("%s got %v, %v, share %d", p.name, p.res[0], p.errs[0], p.bytes[0])
		}
	}
	if idle.res != nil {
		t.Error("a part without statements was polled")
	}
}

func TestWake(t *testing.T) {
	for name, test := range map[string]struct {
		skew time.Duration
		wake func(p *fleet.Poller)
		want time.Duration // when the second poll comes
	}{
		"at once":   {0, func(p *fleet.Poller) { p.Wake() }, 0},
		"at a time": {0, func(p *fleet.Poller) { p.WakeAt(time.Now().Add(300 * time.Millisecond)) }, 300 * time.Millisecond},
		"the first": {0, func(p *fleet.Poller) {
			p.WakeAt(time.Now().Add(time.Hour))
			p.WakeAt(time.Now().Add(200 * time.Millisecond))
		}, 200 * time.Millisecond},
		"a time passed": {0, func(p *fleet.Poller) { p.WakeAt(time.Now().Add(-time.Hour)) }, time.Millisecond},
		"a slow clock":  {time.Hour, func(p *fleet.Poller) { p.WakeAt(time.Now().Add(time.Hour + 100*time.Millisecond)) }, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeStore{skew: test.skew}
			poll(t, s, fleet.Config{}, nil, func(p *fleet.Poller) {
				synctest.Wait() // the first poll
				from := time.Now()
				test.wake(p)
				sleep(900 * time.Millisecond)
				if len(s.at) < 2 || s.at[1].Sub(from) != test.want {
					t.Errorf("polls at %v, from %v", s.at, from)
				}
			})
		})
	}
}

// A time that the estimate of the primary's clock reaches too early is not
// forgotten.
func TestWakeAtWaitsForThePrimary(t *testing.T) {
	s := &fakeStore{skew: 5 * time.Millisecond}
	poll(t, s, fleet.Config{}, nil, func(p *fleet.Poller) {
		synctest.Wait()
		at := time.Now().Add(100 * time.Millisecond)
		p.WakeAt(at)
		sleep(900 * time.Millisecond)
		last := s.at[len(s.at)-1]
		if last.Before(at) || last.Sub(at) > time.Millisecond || len(s.at) > 8 {
			t.Errorf("polls at %v, wanted one at %v", s.at, at)
		}
	})
}

func TestAgain(t *testing.T) {
	t.Run("comes at once", func(t *testing.T) {
		s := &fakeStore{takes: time.Millisecond}
		left := 5
		a := &part{name: "a", sql: "A", again: func() bool { left--; return left > 0 }}
		poll(t, s, fleet.Config{}, []fleet.Part{a}, func(*fleet.Poller) { sleep(500 * time.Millisecond) })
		if n := s.count(); n != 5 {
			t.Errorf("%d polls", n)
		}
	})
	t.Run("is bounded without a change", func(t *testing.T) {
		s := &fakeStore{takes: time.Millisecond}
		a := &part{name: "a", sql: "A", again: func() bool { return true }}
		poll(t, s, fleet.Config{}, []fleet.Part{a}, func(*fleet.Poller) { sleep(900 * time.Millisecond) })
		if n := s.count(); n != 101 {
			t.Errorf("%d polls", n)
		}
	})
	t.Run("is not while it gets on", func(t *testing.T) {
		s := &fakeStore{takes: time.Millisecond}
		a := &part{name: "a", sql: "change", again: func() bool { return true }}
		poll(t, s, fleet.Config{}, []fleet.Part{a}, func(*fleet.Poller) { sleep(900 * time.Millisecond) })
		if n := s.count(); n < 890 {
			t.Errorf("%d polls", n)
		}
	})
}

func TestBackOffAndRecovery(t *testing.T) {
	var up atomic.Bool
	s := &fakeStore{fail: func([]string) error {
		if !up.Load() {
			return sqlError(libsql.Refused, libsql.KindUnreachable)
		}
		return nil
	}}
	a := &part{name: "a", sql: "A"}
	var seen []error
	poll(t, s, fleet.Config{Observed: func(err error) { seen = append(seen, err) }}, []fleet.Part{a}, func(p *fleet.Poller) {
		for range 100 {
			p.Wake() // hastens nothing
			sleep(100 * time.Millisecond)
		}
		sleep(50 * time.Second)
		if n := s.count(); n < 7 || n > 18 {
			t.Errorf("%d polls of a store that is down, in a minute", n)
		}
		if !p.LastOK().IsZero() || a.errs[0] == nil || seen[0] == nil {
			t.Error("a failure looked like a success")
		}
		up.Store(true)
		sleep(10*time.Second + time.Millisecond)
		if p.LastOK().IsZero() || a.errs[len(a.errs)-1] != nil || seen[len(seen)-1] != nil {
			t.Error("no recovery")
		}
		n := s.count()
		sleep(12 * time.Second)
		if got := s.count() - n; got < 9 {
			t.Errorf("%d polls in 12 s after the recovery", got)
		}
	})
}

func TestAFailingPartStopsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		tell bool // whether the others hear of it
	}{
		"sql error":               {sqlError(libsql.Failed, libsql.KindSQL), false},
		"refused argument":        {sqlError(libsql.Refused, libsql.KindSQL), false},
		"constraint":              {sqlError(libsql.Failed, libsql.KindConstraint), false},
		"too large":               {sqlError(libsql.Failed, libsql.KindTooLarge), false},
		"too large, perhaps done": {sqlError(libsql.Unknown, libsql.KindTooLarge), true},
		"takes too long":          {sqlError(libsql.Unknown, libsql.KindTimeout), true},
	} {
		t.Run(name, func(t *testing.T) {
			var mended atomic.Bool
			s := &fakeStore{fail: func(sql []string) error {
				if !mended.Load() && slices.Contains(sql, "B") {
					return test.err
				}
				return nil
			}}
			a, b, c := &part{name: "a", sql: "A"}, &part{name: "b", sql: "B"}, &part{name: "c", sql: "C"}
			poll(t, s, fleet.Config{}, []fleet.Part{a, b, c}, func(*fleet.Poller) {
				sleep(time.Minute)
				for _, p := range []*part{a, c} {
					ok := 0
					for _, err := range p.errs {
						if err == nil {
							ok++
						} else if !test.tell {
							t.Errorf("%s got %v", p.name, err)
						}
					}
					if ok < 40 {
						t.Errorf("%s was polled %d times in a minute", p.name, ok)
					}
				}
				if n := len(b.errs); n > 25 || slices.Contains(b.errs, nil) {
					t.Errorf("the broken part: %d polls, %v", n, b.errs)
				}
				mended.Store(true)
				sleep(15 * time.Second)
				if b.errs[len(b.errs)-1] != nil {
					t.Error("the part did not recover")
				}
				if last := s.batches[s.count()-1]; !slices.Equal(last, []string{"A", "B", "C"}) {
					t.Errorf("still apart: %v", last)
				}
			})
			if shrunk := slices.Min(b.bytes) < fleet.DefaultBudget/3; shrunk != (name == "too large" || test.tell && name != "takes too long") {
				t.Errorf("shares of the broken part: %v", b.bytes)
			}
		})
	}
}

func TestQuiesceKeepsWhatLasts(t *testing.T) {
	s := &fakeStore{takes: 300 * time.Millisecond}
	a, l := &part{name: "a", sql: "A"}, &part{name: "l", sql: "L"}
	synctest.Test(t, func(t *testing.T) {
		p := fleet.New(fleet.Config{}, s, slog.New(slog.DiscardHandler))
		p.Add(a)
		p.AddLasting(l)
		p.Start(t.Context())
		sleep(100 * time.Millisecond)
		if err := p.Quiesce(t.Context()); err != nil || len(a.res) != 1 {
			t.Errorf("%v: did not wait for the poll under way: %d", err, len(a.res))
		}
		sleep(10 * time.Second)
		if err := errors.Join(p.Stop(t.Context()), p.Stop(t.Context())); err != nil {
			t.Error(err)
		}
		if len(a.res) != 1 || len(l.res) < 6 {
			t.Errorf("polled %d and %d times", len(a.res), len(l.res))
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := fleet.New(fleet.Config{}, &fakeStore{}, slog.New(slog.DiscardHandler))
		if err := errors.Join(never.Stop(t.Context()), never.Start(t.Context())); err != nil {
			t.Error(err)
		}
		// A poll that hangs is broken off when the context ends.
		a := &part{name: "a", sql: "A"}
		p := fleet.New(fleet.Config{}, &fakeStore{takes: time.Hour}, slog.New(slog.DiscardHandler))
		p.Add(a)
		p.Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if len(a.errs) != 1 || libsql.OutcomeOf(a.errs[0]) != libsql.Unknown {
			t.Errorf("the part got %v", a.errs)
		}
	})
}
