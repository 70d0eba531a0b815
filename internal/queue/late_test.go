package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// the lost answer of a claim does not count, also when it is read back
// after the claim has lapsed.
func TestLostClaimReadBackLate(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	r := f.replica(nil)
	cfg := quick
	cfg.Visibility, cfg.MaxAttempts, cfg.Backoff = 3*time.Second, 1, 0
	r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
		select { // as any HTTP or database call would
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		for _, m := range b.Messages() {
			m.Ack()
		}
		return nil
	})
	f.put("q", 0, 1)
	r.fault = func(run func() ([]libsql.Result, error)) ([]libsql.Result, error) {
		run()
		return nil, &libsql.Error{Outcome: libsql.Unknown, Err: errors.New("cut")}
	}
	r.poll()
	time.Sleep(cfg.Visibility + 200*time.Millisecond) // the store is away
	r.start()
	f.Eventually("the end", f.isEmpty("q"))
	r.end(t.Context())
	if i := f.info("q"); i.Dead != 0 {
		t.Errorf("dead after a claim that was lost: %+v", i)
	}
}

// An entry of somebody else does not keep those beside it from being settled.
func TestMessageWithTwoClaims(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	r := f.replica(nil)
	cfg := quick
	cfg.Visibility = 5 * time.Second
	n := 0
	r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
		for _, m := range b.Messages() {
			if string(m.Body()) == "1" {
				n++
			}
			m.Ack()
		}
		return nil
	})
	now, err := f.s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.raw(append(append(dueKey("q"), tuple.MustEncode(tuple.Millis(now.UnixMilli()-5000))...), tuple.MustEncode("0")...), `{"body":0,"claim":null,"Claim":"x"}`)
	f.put("q", 0, 1)
	r.start()
	f.Eventually("the end", f.isEmpty("q"))
	r.end(t.Context())
	if i := f.info("q"); n != 1 || i.Dead > 0 {
		t.Errorf("acknowledged %d times, %+v", n, i)
	}
}

// A claim that was read back and delivered, and then lost, counts as a crash.
func TestReadBackThenLost(t *testing.T) {
	f := newFixture(t, libsqltest.File)
	r := f.replica(nil)
	cfg := quick
	cfg.Concurrency = 2
	begun, hold := make(chan int, 9), make(chan struct{})
	r.consume("q", cfg, func(ctx context.Context, b durable.Batch) error {
		begun <- b.Messages()[0].Attempts()
		<-hold
		return nil
	})
	f.put("q", 0, 1)
	r.fault = func(run func() ([]libsql.Result, error)) ([]libsql.Result, error) {
		run()
		return nil, &libsql.Error{Outcome: libsql.Unknown, Err: errors.New("cut")}
	}
	r.poll()
	r.poll() // reads back and delivers
	first := <-begun
	f.expire("q") // the claim of the delivery under way is lost
	r.poll()
	second := <-begun
	close(hold)
	r.Stop(t.Context())
	if first != 1 || second != 2 {
		t.Errorf("attempts %d and %d", first, second)
	}
}
