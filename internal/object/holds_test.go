package object

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// pollSockets makes the part of a poll that is about sockets.
func (m *member) pollSockets(t *testing.T) {
	t.Helper()
	stmts := m.Holds().Poll(1 << 20)
	if len(stmts) == 0 {
		return
	}
	sent := time.Now()
	res, _, err := m.store.Write(t.Context(), stmts...)
	if err != nil {
		t.Fatal(err)
	}
	m.Holds().Polled(res, nil, sent)
}

// holders counts the entries that are live.
func (f *fleet) holders() int64 {
	f.t.Helper()
	res, err := f.db.Batch(f.t.Context(), libsql.Read, libsql.S(`SELECT count(*) FROM kv WHERE k >= x'0264776b5f736f636b657400' AND k < x'0264776b5f736f636b657401' AND expires_at > unixepoch('subsec') * 1000`))
	if err != nil {
		f.t.Fatal(err)
	}
	return res[0].Rows[0][0].(int64)
}

// sayAndWake is a message that reaches other replicas.
func sayAndWake(ctx context.Context, o *room, _ durable.Socket, m durable.SocketMessage) error {
	if err := say(ctx, o, string(m.Data)); err != nil {
		return err
	}
	return o.state.WakeSockets()
}

// repeat sends the last message that was stored to all sockets here.
func repeat(ctx context.Context, o *room) error {
	for row, err := range o.state.SQL().Query(ctx, `SELECT text FROM said ORDER BY id DESC LIMIT 1`) {
		if err != nil {
			return err
		}
		for _, s := range o.state.Sockets() {
			if err := s.Send(durable.SocketMessage{Data: []byte("woken by " + row.Values[0].(string))}); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestWakeSockets(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		a, b := f.join("a"), f.join("b")
		ra, rb := &rooms{message: sayAndWake, woken: repeat}, &rooms{message: sayAndWake, woken: repeat}
		here, there := dial(t, ra.serve(t, a)+"x"), dial(t, rb.serve(t, b)+"x")
		if n := f.holders(); n != 2 {
			t.Fatalf("%d entries, want 2", n)
		}
		a.pollSockets(t)
		b.pollSockets(t) // nothing is marked yet
		for _, text := range []string{"one", "two"} {
			here.say(text)
			here.want(text)
			b.pollSockets(t)
			there.want("woken by " + text)
			b.pollSockets(t) // each mark is told once
			a.pollSockets(t) // and not to the replica that made it
		}
		there.say("three")
		there.want("three")
		a.pollSockets(t)
		here.want("woken by three")
	})
}

// TestExpiredEntriesAreStoredAgain, and what was not marked meanwhile is told.
func TestExpiredEntriesAreStoredAgain(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	ra, rb := &rooms{message: sayAndWake}, &rooms{woken: repeat}
	here, there := dial(t, ra.serve(t, a)+"x"), dial(t, rb.serve(t, b)+"x")
	if _, err := f.db.Batch(t.Context(), libsql.Write, libsql.S(`DELETE FROM kv WHERE k >= x'0264776b5f736f636b657400' AND k < x'0264776b5f736f636b657401'`)); err != nil {
		t.Fatal(err)
	}
	here.say("unmarked")
	here.want("unmarked")
	b.pollSockets(t)
	there.want("woken by unmarked")
	if n := f.holders(); n != 1 {
		t.Errorf("%d entries, want the one that was stored again", n)
	}
	here.say("marked")
	b.settled(t, f)
	here.want("marked")
	b.pollSockets(t)
	there.want("woken by marked")
}

// TestEntriesAreKeptAndLetGo: extended while there are sockets, and left to expire
// then.
func TestEntriesAreKeptAndLetGo(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.HoldTTL = time.Hour })
	r := &rooms{message: echo}
	url := r.serve(t, a)
	c := dial(t, url+"x")
	first := a.faults.trips.Load()
	d := dial(t, url+"x") // the entry is there: it costs what a read costs
	a.settled(t, f)
	if n := a.faults.trips.Load() - first; n > 4 {
		t.Errorf("%d round trips for another socket", n)
	}
	lives := func() (minutes int64, value string) {
		res, err := f.db.Batch(t.Context(), libsql.Read, libsql.S(`SELECT (expires_at - unixepoch('subsec') * 1000) / 60000, v FROM kv WHERE k >= x'0264776b5f736f636b657400' AND k < x'0264776b5f736f636b657401'`))
		if err != nil || len(res[0].Rows) != 1 {
			t.Fatalf("%v %v", res, err)
		}
		left, _ := res[0].Rows[0][0].(float64)
		value, _ = res[0].Rows[0][1].(string)
		return int64(left), value
	}
	if _, err := f.db.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE kv SET expires_at = unixepoch('subsec') * 1000 + 600000 WHERE k >= x'0264776b5f736f636b657400' AND k < x'0264776b5f736f636b657401'`)); err != nil {
		t.Fatal(err)
	}
	a.pollSockets(t)
	if left, _ := lives(); left > 10 {
		t.Errorf("extended to %d minutes before its time", left)
	}
	a.holds.mu.Lock()
	for _, h := range a.holds.objects {
		h.kept = h.kept.Add(-21 * time.Minute)
	}
	a.holds.mu.Unlock()
	a.pollSockets(t)
	if left, value := lives(); left < 50 || value != `{"sockets":2}` {
		t.Errorf("%d minutes are left of %s", left, value)
	}
	c.Close()
	d.Close()
	eventually(t, "no entry is kept", func() bool { return a.socketsOf("x") == 0 && len(a.Holds().Poll(1<<20)) == 0 })
	e := dial(t, url+"x") // it is stored anew
	if len(a.Holds().Poll(1<<20)) == 0 {
		t.Error("the entry of a new socket is not kept")
	}
	e.Close()
}

// socketsOf is how many sockets a room has.
func (m *member) socketsOf(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.actors[key{"Room", durable.IDFromName(name).String()}].socks.len()
}

// TestFailedWakesCloseSockets, so that nobody misses anything in silence.
func TestFailedWakesCloseSockets(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	var fail atomic.Bool
	fail.Store(true)
	ra, rb := &rooms{message: sayAndWake}, &rooms{woken: func(ctx context.Context, o *room) error {
		if fail.Load() {
			return errors.New("on purpose")
		}
		return repeat(ctx, o)
	}}
	here, there := dial(t, ra.serve(t, a)+"x"), dial(t, rb.serve(t, b)+"x?name=there")
	here.say("one")
	here.want("one")
	b.pollSockets(t)
	if before := there.wantClose(1011); len(before) > 0 {
		t.Errorf("heard %q", before)
	}
	eventually(t, "the close was told", func() bool { return strings.HasPrefix(rb.ends(), "there 1011") })
}

// TestRefusedEventsMarkNothing: the marks are part of the commit.
func TestRefusedEventsMarkNothing(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	ra := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		return errors.Join(sayAndWake(ctx, o, s, m), errors.New("on purpose"))
	}}
	rb := &rooms{message: echo, woken: func(context.Context, *room) error { t.Error("woken by what was undone"); return nil }}
	here, there := dial(t, ra.serve(t, a)+"x"), dial(t, rb.serve(t, b)+"x")
	here.say("one")
	here.wantClose(1011)
	b.pollSockets(t)
	there.say("two")
	there.want("two")
}

// TestUnknownOutcomesAreTold: what was stored by a commit whose outcome was not
// found out reaches the sockets here all the same.
func TestUnknownOutcomesAreTold(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.EventTimeout = 5 * time.Second })
	r := &rooms{message: echo, woken: repeat}
	url := r.serve(t, a)
	speaker, listener := dial(t, url+"x"), dial(t, url+"x")
	a.settled(t, f)
	var cut atomic.Bool
	a.faults.setBefore(func(stmts []libsql.Statement) error {
		if cut.Load() && isAcquire(stmts) {
			return lost()
		}
		return nil
	})
	a.faults.setAfter(func(stmts []libsql.Statement) error {
		if isCommit(stmts) && mentions(stmts, "INSERT INTO obj_log") && !cut.Swap(true) {
			return lost()
		}
		return nil
	})
	speaker.say("one")
	speaker.wantClose(1012)
	cut.Store(false)
	a.faults.setBefore(nil)
	a.faults.setAfter(nil)
	listener.want("woken by one")
}

// evictAll drops all objects that are idle, as when memory is short.
func (m *member) evictAll(t *testing.T) {
	t.Helper()
	var victims []*actor
	m.mu.Lock()
	for _, a := range m.actors {
		if m.claimLocked(a) {
			clear(a.givenUp) // as in time
			victims = append(victims, a)
		}
	}
	m.mu.Unlock()
	m.evict(victims)
}

// TestSocketsOfAnObjectThatWasLetGo: between the end of an object's last socket and
// the next one it may have been dropped from memory.
func TestSocketsOfAnObjectThatWasLetGo(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	ra, rb := &rooms{message: sayAndWake}, &rooms{woken: repeat}
	here, url := dial(t, ra.serve(t, a)+"x"), rb.serve(t, b)
	first := dial(t, url+"x?name=first")
	first.Close()
	eventually(t, "the end was told", func() bool { return rb.ends() != "" })
	eventually(t, "the object is let go", func() bool {
		b.evictAll(t)
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.actors) == 0
	})
	second := dial(t, url+"x?name=second")
	b.pollSockets(t)
	here.say("one")
	here.want("one")
	b.pollSockets(t)
	second.want("woken by one")
}

// TestStoringAnEntryAgainLosesNoMark: what another replica stored before is told.
func TestStoringAnEntryAgainLosesNoMark(t *testing.T) {
	f := newFleet(t)
	a, b := f.join("a"), f.join("b")
	ra, rb := &rooms{message: sayAndWake}, &rooms{woken: repeat}
	here, url := dial(t, ra.serve(t, a)+"x"), rb.serve(t, b)
	first := dial(t, url+"x")
	here.say("one")
	here.want("one")
	// The polls of b fail for a while, so that it does not know of its entry.
	b.holds.mu.Lock()
	for _, h := range b.holds.objects {
		h.until = time.Time{}
	}
	b.holds.mu.Unlock()
	dial(t, url+"x")
	b.pollSockets(t)
	first.want("woken by one")
}
