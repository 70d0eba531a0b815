package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
)

// answerTime is how long a replica waits for the primary.
const answerTime = 5 * time.Second

// A wire leads from one replica to the primary. It is the replica's kv.DB.
type wire struct {
	s       *scenario
	replica string
	// cut is set when the replica is dead: nothing arrives any more.
	cut  atomic.Bool
	gone chan struct{}

	mu  sync.Mutex
	rng *rand.Rand
}

// A fate is what becomes of one batch.
type fate struct {
	there, back time.Duration
	// pause is between two statements of the batch.
	pause time.Duration
	// lost is never executed, and silent never answered. Either is known to the
	// sender at once when hasty, and else when he has waited long enough.
	lost, silent, hasty bool
	// early has the sender told that nothing is known before it is executed.
	early bool
	// refused is known not to be executed, and failed has a statement that fails.
	refused, failed bool
	// again, when not 0, is when it is executed a second time. The answer is that
	// of the second time when second.
	again  time.Duration
	second bool
}

func (w *wire) fate() (f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, p := w.rng, w.s.profile
	some := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d)) + 1) }
	f.there, f.back = some(2*time.Millisecond), some(2*time.Millisecond)
	// The draws come in any case, so that a change of one chance leaves the rest.
	kind, x, late := r.Float64(), r.Float64(), r.Float64()
	far, hasty, second := some(3*ttl), r.IntN(2) == 0, r.IntN(2) == 0
	if !w.s.hostile.Load() {
		return f
	}
	f.hasty, f.second = hasty || p.hasty, second
	if x < 0.02 && p.clock {
		f.pause = time.Duration(1+r.IntN(300)) * time.Millisecond
	}
	if late < p.late { // it stands still somewhere
		if r.IntN(2) == 0 {
			f.there += far
		} else {
			f.back += far
		}
	}
	for _, c := range []struct {
		chance float64
		do     func()
	}{
		{p.lose, func() { f.lost = true }},
		{p.lose, func() { f.silent = true }},
		{p.lose / 2, func() { f.early, f.hasty = true, true; f.back = f.there; f.there += min(far, ttl) }},
		{p.double, func() { f.again = some(50 * time.Millisecond); f.again += far * time.Duration(r.IntN(2)) }},
		{p.refuse, func() { f.refused = true }},
		{p.fail, func() { f.failed = true }},
	} {
		if kind -= c.chance; kind < 0 {
			c.do()
			break
		}
	}
	return f
}

// An answer is what comes back.
type answer struct {
	res []libsql.Result
	err error
}

func unknown(kind libsql.Kind, err error) error {
	return &libsql.Error{Outcome: libsql.Unknown, Kind: kind, Statement: -1, Addr: "sim", Err: err}
}

// Batch implements kv.DB.
func (w *wire) Batch(ctx context.Context, _ libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, &libsql.Error{Outcome: libsql.Refused, Kind: libsql.KindTimeout, Statement: -1, Addr: "sim", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	f := w.fate()
	answers := make(chan answer, 2)
	switch {
	case w.cut.Load():
	case f.refused:
		time.Sleep(f.there)
		w.s.note(w.replica, stmts, "refused")
		return nil, &libsql.Error{Outcome: libsql.Refused, Kind: libsql.KindBusy, Statement: -1, Addr: "sim", Err: errors.New("refused")}
	default:
		w.send(stmts, f, f.there, f.again == 0 || !f.second, answers)
		if f.again > 0 {
			w.send(stmts, f, f.there+f.again, f.second, answers)
		}
		if f.early {
			time.AfterFunc(f.back, func() { answers <- answer{err: unknown(libsql.KindUnreachable, errors.New("connection reset"))} })
		}
	}
	select {
	case a := <-answers:
		if !w.cut.Load() {
			return a.res, a.err
		}
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil, unknown(libsql.KindTimeout, ctx.Err())
}

// send has a batch executed after a while.
func (w *wire) send(stmts []libsql.Statement, f fate, there time.Duration, tell bool, answers chan<- answer) {
	w.s.flying.Go(func() {
		time.Sleep(there)
		var a answer
		if f.lost {
			w.s.note(w.replica, stmts, "lost")
		} else {
			var wrong []string
			a.res, wrong, a.err = w.s.primary.run(w.replica, stmts, f.pause, f.failed)
			w.s.note(w.replica, stmts, fmt.Sprintf("%s%s", how(f, tell), outcome(a)))
			w.s.wrong(wrong...)
		}
		time.Sleep(f.back)
		if f.lost || f.silent || f.early {
			if !f.hasty || f.early {
				return
			}
			a = answer{err: unknown(libsql.KindUnreachable, errors.New("connection reset"))}
		}
		if tell {
			answers <- a
		}
	})
}

func how(f fate, tell bool) string {
	switch {
	case f.silent:
		return "executed, answer lost"
	case f.early:
		return "executed, behind the sender's back"
	case f.failed:
		return "failed"
	case !tell:
		return "executed, not answered"
	case f.again > 0:
		return "executed, one of two"
	case f.pause > 0:
		return "executed, with pauses"
	}
	return "executed"
}

// outcome shows the verdict, where there is one.
func outcome(a answer) string {
	if a.err != nil || len(a.res) == 0 {
		return ""
	}
	if rows := a.res[len(a.res)-1].Rows; len(rows) == 1 && len(rows[0]) == 3 {
		return fmt.Sprintf(", ok %v stamp %v", rows[0][0], rows[0][1])
	}
	return ""
}

// Stream implements kv.DB. Nothing in a scenario uses it.
func (w *wire) Stream(context.Context, libsql.Statement) iter.Seq2[libsql.Row, error] {
	return func(yield func(libsql.Row, error) bool) { yield(nil, errors.New("no streams here")) }
}

// Local implements kv.DB.
func (w *wire) Local() bool { return w.s.profile.local }

func (w *wire) String() string { return "sim" }

// kind names a batch by its statements, for traces.
func kind(stmts []libsql.Statement) string {
	var kinds []string
	for _, k := range []struct{ name, text string }{
		{"acquire", "$.acquired_at"}, {"commit", "INSERT INTO obj_log"}, {"release", "RETURNING 1"}, {"take", "SET ok = 2"},
		{"extend", "UPDATE kv SET expires_at"}, {"messages", "$.claimed_by"}, {"sweep", sweepSQL}, {"confirm", "SELECT v, ver, expires_at"},
	} {
		for _, s := range stmts {
			if strings.Contains(s.SQL, k.text) {
				kinds = append(kinds, k.name)
				break
			}
		}
	}
	return fmt.Sprintf("%s (%d statements)", strings.Join(kinds, "+"), len(stmts))
}
