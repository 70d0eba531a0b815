package fleettest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gorilla/websocket"
)

// A said is a message of a room, or without a text a marker.
type said struct {
	Seq     int64
	Op      string
	Text    *string
	Replica string
}

// A party is the members of one room.
type party struct {
	t     *testing.T
	url   string // of the balancer or replica
	room  string
	stop  context.Context
	total int64 // messages that are sent

	wg       sync.WaitGroup
	problems problems
	// here and there are delays of messages, in microseconds, to members on the
	// replica that stored them and on another.
	here, there delays
	// back is how long members took to have a socket again, in microseconds.
	back delays
}

type problems struct {
	mu   sync.Mutex
	list []string
}

func (p *problems) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

func (p *problems) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) > 0 {
		t.Errorf("%d problems:\n%s", len(p.list), strings.Join(p.list[:min(len(p.list), 20)], "\n"))
	}
}

type delays struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func (d *delays) add(v time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h == nil {
		d.h = hdrhistogram.New(1, 600e6, 3)
	}
	d.h.RecordValue(max(v.Microseconds(), 1)) //nolint:errcheck // ten minutes are the most
}

func (d *delays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h == nil {
		return "none"
	}
	at := func(q float64) time.Duration {
		return time.Duration(d.h.ValueAtQuantile(q)) * time.Microsecond
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, max %v", d.h.TotalCount(), at(50), at(99), at(100))
}

// A guest is one member: it keeps a socket open, catches up when it has a new one,
// and repeats what it has said until it hears it.
type guest struct {
	*party
	name string
	last atomic.Int64 // seq up to which it has heard

	mu      sync.Mutex
	conn    *websocket.Conn
	replica string // that has the socket
	pending map[string]string
	ends    []ended
}

// An ended is how a socket ended.
type ended struct {
	replica string
	code    int
	at      time.Time
}

func newParty(t *testing.T, url, room string) *party {
	ctx, cancel := context.WithCancel(t.Context())
	p := &party{t: t, url: url, room: room, stop: ctx}
	t.Cleanup(func() { cancel(); p.wg.Wait() })
	return p
}

// join adds members and waits until each has a socket.
func (p *party) join(n int) []*guest {
	p.t.Helper()
	var list []*guest
	for i := range n {
		g := &guest{party: p, name: fmt.Sprintf("g%d", i), pending: map[string]string{}}
		list = append(list, g)
		p.wg.Go(g.run)
	}
	Eventually(p.t, "everybody is there", func() bool {
		for _, g := range list {
			if g.on() == "" {
				return false
			}
		}
		return true
	})
	return list
}

// on is the replica that has the member's socket, or "".
func (g *guest) on() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == nil {
		return ""
	}
	return g.replica
}

func (g *guest) run() {
	lost := time.Time{}
	for g.stop.Err() == nil {
		conn, resp, err := websocket.DefaultDialer.DialContext(g.stop, "ws"+strings.TrimPrefix(g.url, "http")+"/lab/room/"+g.room+"/socket", nil)
		if err != nil {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-g.stop.Done():
			}
			continue
		}
		stop := context.AfterFunc(g.stop, func() { conn.Close() })
		replica := resp.Header.Get("Dwk-Replica")
		err = g.listen(conn, replica, lost)
		stop()
		conn.Close()
		lost = time.Now()
		g.mu.Lock()
		g.conn = nil
		code := -1
		if c := (*websocket.CloseError)(nil); errors.As(err, &c) {
			code = c.Code
		}
		if g.stop.Err() == nil {
			g.ends = append(g.ends, ended{replica, code, lost})
		}
		g.mu.Unlock()
	}
}

// listen hears until the socket ends.
func (g *guest) listen(conn *websocket.Conn, replica string, lost time.Time) error {
	greeted := false
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		var m said
		if err := json.Unmarshal(data, &m); err != nil {
			g.problems.add("%s heard %s", g.name, data)
			return err
		}
		if m.Text == nil {
			if err := g.catchUp(m.Seq); err != nil {
				return err
			}
			if !greeted {
				greeted = true
				if !lost.IsZero() {
					g.back.add(time.Since(lost))
				}
				g.greet(conn, replica)
			}
			continue
		}
		g.hear(m)
		if len(m.Op) > 0 {
			d := delaysOf(*m.Text)
			if m.Replica == replica {
				g.here.add(d)
			} else {
				g.there.add(d)
			}
		}
	}
}

// delaysOf is how long ago a message was said: its text is that time.
func delaysOf(text string) time.Duration {
	var ns int64
	fmt.Sscan(text, &ns)
	return time.Since(time.Unix(0, ns))
}

// greet has the socket used, and repeats what was not heard.
func (g *guest) greet(conn *websocket.Conn, replica string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conn, g.replica = conn, replica
	for op, text := range g.pending {
		g.sendLocked(op, text)
	}
}

func (g *guest) sendLocked(op, text string) {
	b, _ := json.Marshal(map[string]string{"op": op, "text": text})
	g.conn.SetWriteDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // the write tells
	if g.conn.WriteMessage(websocket.TextMessage, b) != nil {
		g.conn.Close()
	}
}

// say says something, now or when there is a socket again.
func (g *guest) say(op string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := fmt.Sprint(time.Now().UnixNano())
	g.pending[op] = text
	if g.conn != nil {
		g.sendLocked(op, text)
	}
}

// hear takes the next message, which must be the one after the last.
func (g *guest) hear(m said) {
	if last := g.last.Load(); m.Seq != last+1 {
		g.problems.add("%s has heard up to %d and then %d", g.name, last, m.Seq)
	}
	g.last.Store(m.Seq)
	g.mu.Lock()
	delete(g.pending, m.Op)
	g.mu.Unlock()
}

// catchUp reads what was stored up to a seq.
func (g *guest) catchUp(seq int64) error {
	for g.last.Load() < seq {
		a := send(g.stop, http.MethodGet, fmt.Sprintf("%s/lab/room/%s/messages?after=%d", g.url, g.room, g.last.Load()), "")
		if g.stop.Err() != nil {
			return g.stop.Err()
		}
		if a.Status != http.StatusOK {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		var list struct{ Messages []said }
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil {
			return err
		}
		for _, m := range list.Messages {
			if m.Seq <= seq {
				g.hear(m)
			}
		}
	}
	return nil
}

// chat has some of the members say n messages, one every pace, with something happening
// meanwhile, and waits until everybody has heard all.
func (p *party) chat(guests, speakers []*guest, n int, pace time.Duration, meanwhile func()) {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			speakers[i%len(speakers)].say(fmt.Sprintf("m%d", i))
		}
	}()
	began := time.Now()
	meanwhile()
	<-done
	p.wait(guests, int64(n))
	took := time.Since(began)
	for _, g := range guests {
		if got := g.last.Load(); got != int64(n) {
			p.problems.add("%s has heard %d messages of %d", g.name, got, n)
		}
	}
	p.problems.check(p.t)
	p.t.Logf("%d members, %d messages, %.0f a second. On the same replica: %v; on another: %v; back: %v", len(guests), n, float64(n)/took.Seconds(), &p.here, &p.there, &p.back)
}

// wait waits until all have heard up to a seq, as long as somebody goes on hearing.
func (p *party) wait(guests []*guest, seq int64) {
	p.t.Helper()
	for sum, since := int64(-1), time.Now(); ; time.Sleep(5 * time.Millisecond) {
		now, missing := int64(0), 0
		for _, g := range guests {
			if last := g.last.Load(); last < seq {
				missing++
				now += last
			} else {
				now += seq
			}
		}
		switch {
		case missing == 0:
			return
		case now != sum:
			sum, since = now, time.Now()
		case time.Since(since) > patience:
			p.problems.check(p.t)
			p.t.Fatalf("%d of %d members have not heard all of %d messages, and hear nothing more: %d of %d deliveries", missing, len(guests), seq, now, seq*int64(len(guests)))
		}
	}
}

// codes counts how sockets ended, by replica and code.
func codes(guests []*guest) map[string]map[int]int {
	out := map[string]map[int]int{}
	for _, g := range guests {
		g.mu.Lock()
		for _, e := range g.ends {
			if out[e.replica] == nil {
				out[e.replica] = map[int]int{}
			}
			out[e.replica][e.code]++
		}
		g.mu.Unlock()
	}
	return out
}

func guestsOn(guests []*guest, replica string) (n int) {
	for _, g := range guests {
		if g.on() == replica {
			n++
		}
	}
	return n
}

// A room over two replicas: every member hears every message once, in order.
func TestRoom(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases, "DWK_LOG_LEVEL=info")
		b := NewBalancer(t)
		r1, r2 := f.Start(), f.Start()
		b.Add(r1)
		b.Add(r2)
		Eventually(t, "the balancer has two replicas", func() bool { return b.Ready() == 2 })
		p := newParty(t, b.URL, "hall")
		guests := p.join(Long(1000, 20))
		if a, b := guestsOn(guests, r1.ID), guestsOn(guests, r2.ID); a == 0 || b == 0 {
			t.Fatalf("%d and %d members", a, b)
		}
		p.chat(guests, guests, Long(10_000, 100), 5*time.Millisecond, func() {})
		// A machine that is too slow for so many closes some; they come again.
		if ends := codes(guests); len(ends) > 0 && Long(0, 1) == 1 {
			t.Errorf("sockets ended: %v", ends)
		} else if len(ends) > 0 {
			t.Logf("sockets ended: %v", ends)
		}
		Eventually(t, "the registry shows the sockets", func() bool {
			n := 0
			for _, r := range f.status().Replicas {
				n += r.Sockets
			}
			return n == len(guests)
		})
		if r := f.Command("audit"); r.Code != 0 {
			t.Errorf("audit: %+v", r)
		}
	})
}

// Who only listens hears within a poll what is said on another replica, in the
// room and by requests.
func TestRoomOfListeners(t *testing.T) {
	t.Parallel()
	f := New(t, Wire)
	r1, r2, r3 := f.Start(), f.Start(), f.Start()
	speaking, listening := newParty(t, r1.Public, "hall"), newParty(t, r2.Public, "hall")
	speakers, listeners := speaking.join(2), listening.join(3)
	speaking.chat(append(listeners, speakers...), speakers, 20, 50*time.Millisecond, func() {})
	var m struct{ Seq int64 }
	r3.Post("room/hall/messages", "by request").Decode(t, &m)
	Eventually(t, "everybody has heard the request", func() bool {
		for _, g := range append(listeners, speakers...) {
			if g.last.Load() < m.Seq {
				return false
			}
		}
		return true
	})
	speaking.problems.check(t)
	listening.problems.check(t)
	t.Logf("to listeners on another replica: %v", &listening.there)
	if !strings.Contains(r2.Log(), "socket.wake.ok") {
		t.Error("nobody was woken")
	}
}

// How many messages a second one replica takes and gives to so many sockets, each
// of which says the next as soon as it has heard its last.
func TestRoomSpeed(t *testing.T) {
	if Long(1, 0) == 0 {
		t.Skip("a long run measures")
	}
	for _, n := range []int{100, 1000} {
		for _, speakers := range []int{1, 20} {
			f := New(t, Wire, "DWK_LOG_LEVEL=info")
			p := newParty(t, f.Start().Public, "hall")
			guests := p.join(n)
			var said atomic.Int64
			began := time.Now()
			for ; time.Since(began) < 5*time.Second; time.Sleep(200 * time.Microsecond) {
				for _, g := range guests[:speakers] {
					if g.silent() {
						g.say(fmt.Sprintf("m%d", said.Add(1)))
					}
				}
			}
			p.wait(guests, said.Load())
			took := time.Since(began)
			p.problems.check(t)
			t.Logf("%d sockets, %d speak: %.0f messages and %.0f deliveries a second, %v", n, speakers, float64(said.Load())/took.Seconds(), float64(said.Load())*float64(n)/took.Seconds(), &p.here)
		}
	}
}

// silent reports whether the member has heard all that it has said.
func (g *guest) silent() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending) == 0
}

// A replica is killed: those on the other one are untouched, and who comes again
// misses nothing that was stored.
func TestRoomWhoseReplicaIsKilled(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_FLEET_HEARTBEAT_TTL=4s")
	b := NewBalancer(t)
	r1, r2 := f.Start(), f.Start()
	b.Add(r1)
	b.Add(r2)
	Eventually(t, "the balancer has two replicas", func() bool { return b.Ready() == 2 })
	p := newParty(t, b.URL, "hall")
	guests := p.join(Long(200, 20))
	p.chat(guests, guests, Long(4000, 150), 10*time.Millisecond, func() {
		Eventually(t, "some messages were heard", func() bool { return guests[0].last.Load() > 20 })
		r1.Kill()
	})
	ends := codes(guests)
	if len(ends[r2.ID]) > 0 || len(ends[r1.ID]) == 0 {
		t.Errorf("sockets ended: %v, r1 is %s", ends, r1.ID)
	}
	// Its entry is left to the sweep.
	Eventually(t, "the dead replica's entries are swept", func() bool {
		return !strings.Contains(f.Command("kv", "list", "--prefix", `["dwk_socket"]`, "-o", "json").Stdout, r1.ID)
	})
}

// Replicas are replaced one after the other: each socket is closed with the
// configured code, and everybody is back and misses nothing.
func TestRollingRestartWithSockets(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, "DWK_DRAIN_GRACE=1500ms", "DWK_DRAIN_SOCKET_CODE=1012")
	b := NewBalancer(t)
	r1, r2 := f.Start(), f.Start()
	b.Add(r1)
	b.Add(r2)
	Eventually(t, "the balancer has two replicas", func() bool { return b.Ready() == 2 })
	p := newParty(t, b.URL, "hall")
	guests := p.join(Long(1000, 20))
	old := []*Replica{r1, r2}
	p.chat(guests, guests, Long(6000, 200), 10*time.Millisecond, func() {
		for _, r := range old {
			next := f.Start()
			b.Add(next)
			Eventually(t, "the balancer has the new replica", func() bool { return b.Ready() == 3 })
			r.Terminate()
			wantExit(t, r, 0)
			Eventually(t, "the balancer has noticed", func() bool { return b.Ready() == 2 })
			Eventually(t, "everybody is back", func() bool {
				for _, g := range guests {
					if on := g.on(); on == "" || on == r.ID {
						return false
					}
				}
				return true
			})
		}
	})
	for id, byCode := range codes(guests) {
		if len(byCode) != 1 || byCode[1012] == 0 {
			t.Errorf("sockets of %s ended: %v", id, byCode)
		}
	}
	for _, r := range old {
		wantNothingLeft(t, r)
		began, last := stepBegan(r, "sockets"), time.Time{}
		for _, g := range guests {
			g.mu.Lock()
			for _, e := range g.ends {
				if e.replica == r.ID && e.at.After(last) {
					last = e.at
				}
			}
			g.mu.Unlock()
		}
		t.Logf("%s: the last client knew %v after the step began", r.Name, last.Sub(began))
	}
	if s := f.Command("kv", "list", "--prefix", `["dwk_socket"]`, "-o", "json").Stdout; strings.Contains(s, r1.ID) || strings.Contains(s, r2.ID) {
		t.Errorf("entries are left: %s", s)
	}
}

// stepBegan is when a step of a replica's stop began: when the one before ended.
func stepBegan(r *Replica, step string) (began time.Time) {
	for line := range strings.Lines(r.Log()) {
		var l struct {
			Time      time.Time
			Msg, Step string
		}
		if json.Unmarshal([]byte(line), &l) != nil || l.Msg != "drain.step.done" {
			continue
		}
		if l.Step == step {
			return began
		}
		began = l.Time
	}
	return time.Time{}
}
