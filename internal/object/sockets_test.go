package object

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A room is an object with sockets, whose handlers a test chooses.
type room struct {
	state durable.State
	rooms *rooms
}

// rooms are the handlers of a test's rooms, and what they have seen.
type rooms struct {
	accept  func(o *room, w http.ResponseWriter, r *http.Request)
	message func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error
	woken   func(ctx context.Context, o *room) error

	mu     sync.Mutex
	closed []string
}

func (o *room) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if o.rooms.accept != nil {
		o.rooms.accept(o, w, r)
		return
	}
	o.state.AcceptSocket(w, r, r.URL.Query().Get("name")) //nolint:errcheck // it has answered
}

func (o *room) SocketMessage(ctx context.Context, s durable.Socket, m durable.SocketMessage) error {
	return o.rooms.message(ctx, o, s, m)
}

func (o *room) SocketClose(_ context.Context, s durable.Socket, code int, _ string) error {
	for _, other := range o.state.Sockets() {
		if other == s {
			return errors.New("a socket that has ended is listed")
		}
	}
	o.rooms.mu.Lock()
	defer o.rooms.mu.Unlock()
	o.rooms.closed = append(o.rooms.closed, fmt.Sprintf("%v %d", s.Attachment(), code))
	return nil
}

func (o *room) SocketWake(ctx context.Context) error {
	if o.rooms.woken == nil {
		return nil
	}
	return o.rooms.woken(ctx, o)
}

func (r *rooms) ends() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.closed, ",")
}

// say stores a message and sends it to all sockets.
func say(ctx context.Context, o *room, text string) error {
	if _, err := o.state.SQL().Exec(ctx, `INSERT INTO said(text) VALUES (?)`, text); err != nil {
		return err
	}
	for _, s := range o.state.Sockets() {
		if err := s.Send(durable.SocketMessage{Data: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}

func echo(ctx context.Context, o *room, _ durable.Socket, m durable.SocketMessage) error {
	return say(ctx, o, string(m.Data))
}

// said is what a room has stored.
func (f *fleet) said(m *member, name string) string {
	f.t.Helper()
	w := m.doClass(f.t.Context(), "Room", name, "/said", nil)
	if w.Code != 200 {
		f.t.Fatalf("said: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// serve registers the class Room at a member and serves it over HTTP; the path is
// the room.
func (r *rooms) serve(t *testing.T, m *member) string {
	t.Helper()
	class := func(s durable.State, _ durable.Env) (durable.Object, error) {
		_, err := s.SQL().Exec(context.Background(), `CREATE TABLE IF NOT EXISTS said(id INTEGER PRIMARY KEY, text TEXT)`)
		return &listener{room{s, r}}, err
	}
	if err := m.Register("Room", Class{New: class, Env: testEnv{rt: m.Runtime}}); err != nil {
		t.Fatal(err)
	}
	ns := m.Namespace("Room")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ns.Get(ns.ID(strings.TrimPrefix(req.URL.Path, "/"))).ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	return "ws" + strings.TrimPrefix(s.URL, "http") + "/"
}

// A listener is a room that also tells what was said.
type listener struct{ room }

func (o *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/said" {
		o.room.ServeHTTP(w, r)
		return
	}
	var all []string
	for row, err := range o.state.SQL().Query(r.Context(), `SELECT text FROM said ORDER BY id`) {
		if err != nil {
			panic(err)
		}
		all = append(all, row.Values[0].(string))
	}
	fmt.Fprint(w, strings.Join(all, " "))
}

type client struct {
	*websocket.Conn
	t *testing.T
}

func dial(t *testing.T, url string) client {
	t.Helper()
	c, err := dialing(t, url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dialing is dial for goroutines of a test's own.
func dialing(t *testing.T, url string) (client, error) {
	c, resp, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
	if err != nil {
		return client{}, fmt.Errorf("dial %s: %w %v", url, err, resp)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return client{c, t}, nil
}

func (c client) say(text string) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Errorf("say %s: %v", text, err)
	}
}

func (c client) want(texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		if _, got, err := c.ReadMessage(); err != nil || string(got) != text {
			c.t.Fatalf("heard %q, %v, want %q", got, err, text)
		}
	}
}

// wantClose reads until the close, and reports what came before it.
func (c client) wantClose(code int) (before []string) {
	c.t.Helper()
	for {
		_, m, err := c.ReadMessage()
		if err == nil {
			before = append(before, string(m))
			continue
		}
		if !websocket.IsCloseError(err, code) {
			c.t.Fatalf("ended with %v, want %d", err, code)
		}
		return before
	}
}

func TestSocketsHearInOrder(t *testing.T) {
	eachFleet(t, func(t *testing.T, f *fleet) {
		a := f.join("a")
		r := &rooms{message: echo}
		url := r.serve(t, a)
		one, two := dial(t, url+"x?name=one"), dial(t, url+"x?name=two")
		dial(t, url+"y?name=other")
		var want []string
		for i := range 20 {
			one.say(itoa(i))
			want = append(want, itoa(i))
		}
		one.want(want...)
		two.want(want...)
		if got := f.said(a, "x"); got != strings.Join(want, " ") {
			t.Errorf("stored %s", got)
		}
		if n := a.Stats().Sockets; n != 3 {
			t.Errorf("%d sockets, want 3", n)
		}
		one.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "bye"), time.Now().Add(time.Minute))
		one.wantClose(4001)
		two.Close()
		eventually(t, "the closes were told", func() bool { return len(strings.Split(r.ends(), ",")) == 2 })
		if got := r.ends(); !strings.Contains(got, "one 4001") || !strings.Contains(got, "two 1006") {
			t.Errorf("closed: %s", got)
		}
		eventually(t, "only one socket is left", func() bool { return a.Stats().Sockets == 1 })
	})
}

// TestHandshakeWaitsForTheCommit: the client is not told before the event is
// durable, and not at all when it is refused.
func TestHandshakeWaitsForTheCommit(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{accept: func(o *room, w http.ResponseWriter, r *http.Request) {
		if _, err := o.state.AcceptSocket(w, r, nil); err != nil {
			t.Error(err)
		}
		if n := len(o.state.Sockets()); n != 1 {
			t.Errorf("%d sockets, want the one that was accepted", n)
		}
		say(r.Context(), o, "hello")
	}}
	url := r.serve(t, a)
	committing, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.faults.setBefore(func(stmts []libsql.Statement) error {
		if isCommit(stmts) {
			once.Do(func() { close(committing) })
			<-release
		}
		return nil
	})
	dialled := make(chan client)
	var refused error
	go func() {
		defer close(dialled)
		var c client
		if c, refused = dialing(t, url+"x"); refused == nil {
			dialled <- c
		}
	}()
	<-committing
	select {
	case <-dialled:
		t.Error("the client was told before the commit")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	c, ok := <-dialled
	if !ok {
		t.Fatal(refused)
	}
	c.want("hello")
	c.Close()
	eventually(t, "no socket is left", func() bool { return a.Stats().Sockets == 0 })

	a.faults.setBefore(func(stmts []libsql.Statement) error {
		if isCommit(stmts) {
			return &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindSQL, Statement: -1, Err: errors.New("on purpose")}
		}
		return nil
	})
	_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), url+"x", nil)
	if err == nil || resp == nil || resp.StatusCode != 503 {
		t.Errorf("a refused handshake: %v %v", err, resp)
	}
	a.faults.setBefore(nil)
	if n := a.Stats().Sockets; n != 0 {
		t.Errorf("%d sockets after a refused handshake", n)
	}
}

// TestFailedMessagesAreUndone: nothing that the event did is seen, and the socket
// is closed with 1011.
func TestFailedMessagesAreUndone(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("on purpose") },
		"panic": func() error { panic("on purpose") },
	} {
		t.Run(name, func(t *testing.T) {
			r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
				if string(m.Data) != "fail" {
					return say(ctx, o, string(m.Data))
				}
				for _, k := range o.state.Sockets() {
					k.SetAttachment("changed")
					if k != s {
						k.Close(4000, "")
					}
				}
				if err := say(ctx, o, "unheard"); err != nil {
					t.Error(err)
				}
				return fail()
			}}
			m := a
			if name == "panic" {
				m = f.join("b")
			}
			url := r.serve(t, m)
			one, two := dial(t, url+name+"?name=one"), dial(t, url+name+"?name=two")
			one.say("first")
			one.want("first")
			one.say("fail")
			if before := one.wantClose(1011); len(before) > 0 {
				t.Errorf("heard %q", before)
			}
			two.want("first")
			two.say("second")
			two.want("second")
			if got := f.said(m, name); got != "first second" {
				t.Errorf("stored %q", got)
			}
			eventually(t, "the close was told", func() bool { return r.ends() == "one 1011" })
		})
	}
}

// TestRefusedMessagesAreRunAgain: a lease that an operator ends costs a message
// another run, and nothing is sent twice.
func TestRefusedMessagesAreRunAgain(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	var runs atomic.Int64
	r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		if runs.Add(1) == 1 {
			if _, err := f.db.Batch(ctx, libsql.Write, libsql.S(`DELETE FROM kv WHERE k >= x'0264776b5f6c65617365' AND k < x'0264776b5f6c65617366'`)); err != nil {
				t.Error(err)
			}
		}
		return say(ctx, o, string(m.Data))
	}}
	c := dial(t, r.serve(t, a)+"x")
	c.say("one")
	c.say("two")
	c.want("one", "two")
	if runs.Load() != 3 || f.said(a, "x") != "one two" {
		t.Errorf("%d runs, stored %s", runs.Load(), f.said(a, "x"))
	}
}

// TestMessagesThatCannotRunInterrupt: another replica keeps the object until the
// deadline has passed.
func TestMessagesThatCannotRunInterrupt(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.EventTimeout, c.AcquireTimeout = 4*time.Second, 3*time.Second })
	r := &rooms{message: echo}
	c := dial(t, r.serve(t, a)+"x?name=c")
	a.settled(t, f)
	f.holdClass("Room", "x", "other", time.Hour)
	c.say("one")
	c.wantClose(1012)
}

func TestSlowReadersAreCutOff(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	big := strings.Repeat("x", 32<<10)
	r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		for _, k := range o.state.Sockets() {
			if err := k.Send(durable.SocketMessage{Data: []byte(big)}); err != nil {
				return err
			}
		}
		return nil
	}}
	url := r.serve(t, a)
	fast, slow := dial(t, url+"x?name=fast"), dial(t, url+"x?name=slow")
	for range 1000 {
		fast.say("more")
		fast.want(big)
		if r.ends() != "" {
			break
		}
	}
	eventually(t, "the slow one was cut off", func() bool { return r.ends() == "slow 1008" })
	fast.say("more")
	fast.want(big)
	for {
		if _, _, err := slow.ReadMessage(); err != nil {
			break
		}
	}
}

// TestSocketsOutliveTheirInstances: sockets and attachments stay when the object
// is dropped from memory.
func TestSocketsOutliveTheirInstances(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Resident = 1 })
	r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		s.SetAttachment(fmt.Sprint(s.Attachment(), "+"))
		if _, err := o.state.SQL().Exec(ctx, `INSERT INTO said(text) VALUES ('')`); err != nil {
			return err // a commit that releases leaves nothing to remember of the object
		}
		return s.Send(durable.SocketMessage{Data: fmt.Append(nil, s.Attachment(), len(o.state.Sockets()))})
	}}
	url := r.serve(t, a)
	c := dial(t, url+"x?name=c")
	for i := range 3 {
		c.say("")
		c.want("c" + strings.Repeat("+", i+1) + "1")
		a.settled(t, f)
		a.do(t, "other", "/add", nil)
		a.do(t, "another", "/add", nil)
		eventually(t, "the room was dropped", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			room := a.actors[key{"Room", durable.IDFromName("x").String()}]
			return room == nil || room.place == nil
		})
	}
}

// TestSocketsAreUsedWithinEvents: a value that is kept leads nowhere later.
func TestSocketsAreUsedWithinEvents(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	kept := make(chan durable.Socket, 1)
	r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		for _, code := range []int{0, 999, 1002, 1005, 1006, 1015, 2999, 5000} {
			if err := s.Close(code, ""); !errors.Is(err, durable.ErrInvalid) {
				t.Errorf("close with %d: %v", code, err)
			}
		}
		if err := s.Close(1000, strings.Repeat("x", 124)); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("a long reason: %v", err)
		}
		if err := s.Send(durable.SocketMessage{Data: make([]byte, 2<<20)}); !errors.Is(err, durable.ErrTooLarge) {
			t.Errorf("a message over the limit: %v", err)
		}
		kept <- s
		return nil
	}}
	c := dial(t, r.serve(t, a)+"x?name=c")
	c.say("")
	s := <-kept
	a.settled(t, f)
	s.SetAttachment("late")
	if err := errors.Join(s.Send(durable.SocketMessage{}), s.Close(1000, "")); !errors.Is(err, durable.ErrRevoked) || s.Attachment() != "c" {
		t.Errorf("%v, attachment %v", err, s.Attachment())
	}
}

// TestApplicationsCloseSockets: behind what was sent, and without being told.
func TestApplicationsCloseSockets(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{message: func(ctx context.Context, o *room, s durable.Socket, m durable.SocketMessage) error {
		s.Send(durable.SocketMessage{Data: []byte("last"), Binary: true})
		if err := s.Close(4002, "enough"); err != nil {
			return err
		}
		if n := len(o.state.Sockets()); n != 0 {
			t.Errorf("%d sockets after the close", n)
		}
		return nil
	}}
	c := dial(t, r.serve(t, a)+"x?name=c")
	c.say("")
	if before := c.wantClose(4002); len(before) != 1 || before[0] != "last" {
		t.Errorf("heard %q", before)
	}
	eventually(t, "no socket is left", func() bool { return a.Stats().Sockets == 0 })
	a.settled(t, f)
	if r.ends() != "" {
		t.Errorf("told of %s", r.ends())
	}
}

// TestStoppingClosesSockets with 1001, and the objects are told.
func TestStoppingClosesSockets(t *testing.T) {
	f := newFleet(t)
	a := f.join("a")
	r := &rooms{message: echo}
	url := r.serve(t, a)
	c := dial(t, url+"x?name=c")
	if err := a.CloseSockets(t.Context(), 1012); err != nil {
		t.Error(err)
	}
	c.wantClose(1012)
	if r.ends() != "c 1012" {
		t.Errorf("told of %q", r.ends())
	}
	_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), url+"x", nil)
	if err == nil || resp == nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a handshake while stopping: %v %v", err, resp)
	}
}

func TestRefusedHandshakes(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Sockets.Max = 1 })
	var failed atomic.Value
	r := &rooms{accept: func(o *room, w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Query().Get("protocol"); p != "" {
			w.Header().Set("Sec-WebSocket-Protocol", p)
		}
		_, err := o.state.AcceptSocket(w, r, nil)
		failed.Store(fmt.Sprint(err))
		if again, err := o.state.AcceptSocket(w, r, nil); err == nil {
			t.Errorf("accepted twice: %v", again)
		}
	}}
	url := strings.Replace(r.serve(t, a), "ws://", "http://", 1)
	good := map[string]string{"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/")
	for _, c := range []struct {
		method, query string
		change        map[string]string
		status        int
	}{
		{"POST", "", nil, 405},
		{"GET", "", map[string]string{"Upgrade": ""}, 426},
		{"GET", "", map[string]string{"Connection": "close"}, 426},
		{"GET", "", map[string]string{"Sec-WebSocket-Version": "8"}, 426},
		{"GET", "", map[string]string{"Sec-WebSocket-Key": ""}, 400},
		{"GET", "", map[string]string{"Sec-WebSocket-Key": "short"}, 400},
		{"GET", "", map[string]string{"Origin": "null"}, 403},
		{"GET", "", map[string]string{"Origin": "https://evil.example"}, 403},
		{"GET", "", map[string]string{"Origin": "http://test.example"}, 403},
		{"GET", "", map[string]string{"Origin": "https://test.example:444"}, 403},
		{"GET", "", map[string]string{"Origin": "https://evil.example", "Host": "evil.example"}, 403},
		{"GET", "", map[string]string{"Origin": "http://localhost:1"}, 403},
		{"GET", "?protocol=chat", map[string]string{"Sec-WebSocket-Protocol": "v1, v2"}, 200},
		{"GET", "", map[string]string{"Origin": "https://TEST.example"}, 101},
		{"GET", "", map[string]string{"Origin": "https://test.example:443"}, 101},
		{"GET", "", map[string]string{"Origin": "http://" + host}, 101},
		{"GET", "?protocol=v2", map[string]string{"Sec-WebSocket-Protocol": "v1, v2"}, 101},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url+"x"+c.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range good {
			req.Header.Set(name, value)
		}
		for name, value := range c.change {
			if req.Header.Set(name, value); name == "Host" {
				req.Host = value
			}
		}
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if resp.StatusCode != c.status || (c.status == 101) != (failed.Load() == "<nil>") || c.query == "?protocol=v2" && resp.Header.Get("Sec-WebSocket-Protocol") != "v2" {
			t.Errorf("%v: status %d, %v", c, resp.StatusCode, failed.Load())
		}
		if c.status == 101 {
			_, over, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+host+"/x", nil)
			if err == nil || over == nil || over.StatusCode != 503 {
				t.Errorf("one socket too many: %v %v", err, over)
			}
		}
		resp.Body.Close()
		eventually(t, "no socket is left", func() bool { return a.Stats().Sockets == 0 })
	}
	if w := a.doClass(t.Context(), "Counter", "x", "/accept", handlers{"/accept": func(o *funcObject, w http.ResponseWriter, r *http.Request) {
		if _, err := o.state.AcceptSocket(w, r, nil); !errors.Is(err, durable.ErrInvalid) {
			t.Errorf("an object without handlers accepted: %v", err)
		}
	}}); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}

// TestMessagesLeaveRoomForRequests: each socket may have a message waiting, and the
// bound of waiting events is one of requests.
func TestMessagesLeaveRoomForRequests(t *testing.T) {
	f := newFleet(t)
	a := f.join("a", func(c *Config) { c.Waiters = 1 })
	running, release := make(chan struct{}), make(chan struct{})
	r := &rooms{message: func(ctx context.Context, o *room, _ durable.Socket, m durable.SocketMessage) error {
		if string(m.Data) == "hold" {
			close(running)
			<-release
		}
		return say(ctx, o, string(m.Data))
	}}
	url := r.serve(t, a)
	holder := dial(t, url+"x")
	var others []client
	for range 5 {
		others = append(others, dial(t, url+"x"))
	}
	holder.say("hold")
	<-running
	answers := make(chan int, 2)
	ask := func() { answers <- a.doClass(t.Context(), "Room", "x", "/said", nil).Code }
	go ask()
	a.waitQueued(t, 1)
	for _, c := range others {
		c.say("more")
	}
	a.waitQueued(t, len(others)+1)
	if ask(); <-answers != 503 {
		t.Error("a request too many was not refused")
	}
	close(release)
	if code := <-answers; code != 200 {
		t.Errorf("the request that waited: %d", code)
	}
	holder.want("hold", "more", "more", "more", "more", "more")
}
