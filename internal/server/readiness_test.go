package server

import (
	"bytes"
	"context"
	"errors"
	"github.com/davidwkeith/dwk/internal/event"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a check that counts its runs.
type counting struct {
	runs atomic.Int64
	err  atomic.Pointer[error]
}

func (c *counting) check(name string, age time.Duration) Check {
	return Check{Name: name, MaxAge: age, Timeout: time.Second, Run: func(context.Context) error {
		c.runs.Add(1)
		if err := c.err.Load(); err != nil {
			return *err
		}
		return nil
	}}
}

func (c *counting) fail(err error) { c.err.Store(&err) }

func TestReadinessCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var db, bucket counting
		r := NewReadiness(nil, db.check("db", 2*time.Second), bucket.check("bucket", 30*time.Second))
		want := func(ready bool, dbRuns, bucketRuns int64) {
			t.Helper()
			got := r.Report(t.Context()).Ready()
			if latest := r.Latest().Ready(); latest != got {
				t.Errorf("latest %t, reported %t", latest, got)
			}
			if got != ready || db.runs.Load() != dbRuns || bucket.runs.Load() != bucketRuns {
				t.Fatalf("ready %t after %d and %d runs, want %t after %d and %d", got, db.runs.Load(), bucket.runs.Load(), ready, dbRuns, bucketRuns)
			}
		}
		want(false, 0, 0) // starting touches no store
		r.SetState(StateReady)
		for range 100 {
			want(true, 1, 1)
		}
		time.Sleep(2 * time.Second)
		want(true, 2, 1)
		bucket.fail(errors.New("unnoticed"))
		if !r.Latest().Ready() {
			t.Error("latest: not what was seen")
		}
		bucket.err.Store(nil)
		for range 10 { // a poll every second counts in place of the check
			time.Sleep(time.Second)
			r.Observe("db", nil)
			r.Observe("unknown", errors.New("ignored"))
			want(true, 2, 1)
		}
		r.Observe("db", errors.New("down"))
		want(false, 2, 1)
		time.Sleep(2 * time.Second)
		want(true, 3, 1)
		time.Sleep(30 * time.Second)
		bucket.fail(errors.New("gone"))
		want(false, 4, 2)
		report := r.Report(t.Context())
		if len(report.Failing) != 1 || report.Failing[0].Store != "bucket" || report.Failing[0].Err.Error() != "gone" {
			t.Errorf("failing %v", report.Failing)
		}
		for _, s := range []State{StateDraining, StateStopping} {
			r.SetState(s)
			time.Sleep(time.Minute)
			want(false, 4, 2)
		}
	})
}

func TestReadinessSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		r := NewReadiness(nil, Check{Name: "db", MaxAge: time.Second, Run: func(ctx context.Context) error {
			runs.Add(1)
			time.Sleep(100 * time.Millisecond)
			return ctx.Err()
		}})
		r.SetState(StateReady)
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.Report(first) })
		synctest.Wait()
		cancel() // who asked first goes away: the others still get the result
		for range 20 {
			wg.Go(func() {
				if !r.Report(t.Context()).Ready() {
					t.Error("not ready")
				}
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wg.Go(func() {
			if r.Report(impatient).Ready() {
				t.Error("ready without a result")
			}
		})
		wg.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestReadinessTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReadiness(nil, Check{Name: "db", MaxAge: time.Minute, Timeout: 3 * time.Second, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		r.SetState(StateReady)
		start := time.Now()
		report := r.Report(t.Context())
		if time.Since(start) != 3*time.Second || len(report.Failing) != 1 || !strings.Contains(report.Failing[0].Err.Error(), "no answer within 3s") {
			t.Errorf("%v after %v", report.Failing, time.Since(start))
		}
	})
}

// A result that was asked for before another must not replace it.
func TestReadinessOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReadiness(nil, Check{Name: "db", MaxAge: time.Minute, Run: func(context.Context) error {
			time.Sleep(time.Second)
			return errors.New("old news")
		}})
		r.SetState(StateReady)
		var wg sync.WaitGroup
		wg.Go(func() { r.Report(t.Context()) })
		time.Sleep(time.Millisecond)
		r.Observe("db", nil)
		wg.Wait()
		if report := r.Report(t.Context()); !report.Ready() {
			t.Errorf("failing %v", report.Failing)
		}
	})
}

func TestReadinessLogs(t *testing.T) {
	var log bytes.Buffer
	r := NewReadiness(slog.New(slog.NewTextHandler(&log, nil)), Check{Name: "db"})
	for _, err := range []error{nil, errors.New("a"), errors.New("b"), nil, nil} {
		r.Observe("db", err)
	}
	if s := log.String(); strings.Count(s, event.ProbeStoreFailed) != 1 || strings.Count(s, event.ProbeStoreRecovered) != 1 {
		t.Error(s)
	}
}
