package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// sentQueue keeps what was sent to it, or fails.
type sentQueue struct {
	bodies []string
	delay  time.Duration
	err    error
}

func (q *sentQueue) Send(context.Context, any, durable.SendOptions) error {
	return errors.ErrUnsupported
}

func (q *sentQueue) SendBatch(_ context.Context, bodies []any, o durable.SendOptions) error {
	for _, b := range bodies {
		q.bodies = append(q.bodies, string(b.(json.RawMessage)))
	}
	q.delay = o.Delay
	return q.err
}

func TestQueueSend(t *testing.T) {
	env := newFakeEnv(t)
	q := &sentQueue{}
	env.queue = q
	h, err := newFront(env)
	if err != nil {
		t.Fatal(err)
	}
	want(t, send(h, "POST", "/queue/default/send?n=3&delay=1.5s", `{"a": 12345678901234567890}`), 200, `{"queue":"default","sent":3}`)
	if len(q.bodies) != 3 || q.bodies[2] != `{"a": 12345678901234567890}` || q.delay != 1500*time.Millisecond {
		t.Errorf("%+v", q)
	}
	for target, status := range map[string]int{
		"/queue/default/send?n=0": 400, "/queue/default/send?n=10001": 400, "/queue/default/send?delay=-1s": 400, "/queue/default/send?delay=x": 400,
		"/queue/other/send": 404, "/queue/default/x": 404, "/queue/default": 404, "/queue": 404,
	} {
		if w := send(h, "POST", target, "1"); w.Code != status {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if w := send(h, "GET", "/queue/default/send", ""); w.Code != 405 {
		t.Error(w.Code)
	}
	if w := send(h, "POST", "/queue/default/send", strings.Repeat("1", maxBody+1)); w.Code != 413 {
		t.Error(w.Code)
	}
	for err, status := range map[error]int{durable.ErrInvalid: 400, durable.ErrTooLarge: 413, durable.ErrUnavailable: 503, durable.ErrUnknownOutcome: 504} {
		q.err = fmt.Errorf("send: %w", err)
		w := send(h, "POST", "/queue/default/send", "1")
		if w.Code != status || (status == 504) != (w.Header().Get("Dwk-Outcome") == "unknown") {
			t.Errorf("%v: %d %v", err, w.Code, w.Header())
		}
	}
}

// A fakeBatch is a delivery.
type fakeBatch []*fakeMessage

func (b fakeBatch) Queue() string { return queueName }
func (b fakeBatch) Messages() (out []durable.Message) {
	for _, m := range b {
		out = append(out, m)
	}
	return out
}

type fakeMessage struct {
	body     string
	attempts int
	acked    bool
}

func (m *fakeMessage) ID() string            { return "id of " + m.body }
func (m *fakeMessage) Body() json.RawMessage { return json.RawMessage(m.body) }
func (m *fakeMessage) Attempts() int         { return m.attempts }
func (m *fakeMessage) Timestamp() time.Time  { return time.Time{} }
func (m *fakeMessage) Ack()                  { m.acked = true }
func (m *fakeMessage) Retry(time.Duration)   {}

func TestConsume(t *testing.T) {
	env := newFakeEnv(t)
	env.queue = &sentQueue{}
	h, err := newFront(env)
	if err != nil {
		t.Fatal(err)
	}
	want(t, send(h, "GET", "/queue/default/seen", ""), 200, `{"name":"default","seen":[]}`)
	b := fakeBatch{
		{body: `{"n":9007199254740993}`, attempts: 1}, {body: `{"fail":2}`, attempts: 2}, {body: `{"fail":2}`, attempts: 3},
		{body: `{"unacked":1}`, attempts: 1}, {body: `{"unacked":1}`, attempts: 2}, {body: `"text"`, attempts: 1}, {body: `{"fail":"x","sleep":1}`, attempts: 1},
	}
	if err := consume(t.Context(), env, b); !errors.Is(err, errAsked) {
		t.Error(err)
	}
	for i, want := range []bool{true, false, true, false, true, true, true} {
		if b[i].acked != want {
			t.Errorf("%d: %+v", i, b[i])
		}
	}
	if err := consume(t.Context(), env, b[:1]); err != nil {
		t.Error(err)
	}
	var got struct {
		Seen []struct {
			Seq, Attempts, At int
			ID, Replica       string
			Body              json.RawMessage
		}
	}
	w := send(h, "GET", "/queue/default/seen?after=1", "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Seen) != 7 {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if s := got.Seen[0]; s.Seq != 2 || s.ID != `id of {"fail":2}` || s.Attempts != 2 || s.Replica != "r1" || string(s.Body) != `{"fail":2}` {
		t.Errorf("%+v", s)
	}
	if w := send(h, "GET", "/queue/default/seen?after=x", ""); w.Code != 400 {
		t.Error(w.Code)
	}
	// A consumer that is told to end does.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sleepFor(ctx, 1000); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
