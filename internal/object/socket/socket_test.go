package socket

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A peer is the server's side: it echoes, and remembers how sockets ended.
type peer struct {
	t    testing.TB
	hub  *Hub
	url  string
	addr string
	ends chan string

	mu    sync.Mutex
	conns []*Conn
	bad   string // what should not have come through
}

func (p *peer) conn(i int) *Conn { p.mu.Lock(); defer p.mu.Unlock(); return p.conns[i] }

type echo struct {
	p *peer
	c *Conn
}

func (e *echo) Message(m durable.SocketMessage) (int, string) {
	if int64(len(m.Data)) > e.p.hub.cfg.MessageLimit || !m.Binary && !utf8.Valid(m.Data) {
		e.p.mu.Lock()
		e.p.bad = fmt.Sprintf("a message of %d bytes came through", len(m.Data))
		e.p.mu.Unlock()
	}
	if string(m.Data) == "fail" {
		return Failed, "on purpose"
	}
	e.c.Send(NewMessage(m))
	return 0, ""
}

func (e *echo) Closed(code int, _ string) {
	select {
	case e.p.ends <- fmt.Sprint(code):
	default:
	}
}

func config() Config {
	return Config{Max: 20000, MessageLimit: 64 << 10, QueueLimit: 1 << 20, Ping: time.Minute, Timeout: 10 * time.Second}
}

func start(t testing.TB, cfg Config) *peer {
	t.Helper()
	p := &peer{t: t, hub: NewHub(cfg), ends: make(chan string, 100)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Check(r, nil); err != nil {
			http.Error(w, err.Error(), err.(*Refusal).Status)
			return
		}
		e := &echo{p: p}
		c, err := p.hub.New(e)
		if err != nil {
			http.Error(w, err.Error(), 503)
			return
		}
		e.c = c
		p.mu.Lock()
		p.conns = append(p.conns, c)
		p.mu.Unlock()
		c.Upgrade(w, r, nil) //nolint:errcheck // the handler is told
	}))
	p.url, p.addr = "ws"+strings.TrimPrefix(s.URL, "http"), s.Listener.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.hub.CloseAll(ctx, GoingAway, "over"); err != nil {
			t.Error(err)
		}
		p.hub.Stop()
		s.Close()
		if p.bad != "" {
			t.Error(p.bad)
		}
		if n := p.hub.Count(); n != 0 {
			t.Errorf("%d sockets are left", n)
		}
	})
	return p
}

func (p *peer) dial(compress bool) *websocket.Conn {
	p.t.Helper()
	d := websocket.Dialer{EnableCompression: compress, HandshakeTimeout: time.Minute}
	c, _, err := d.Dial(p.url, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return c
}

// raw shakes hands and returns the bare connection.
func (p *peer) raw(extensions string) (net.Conn, *bufio.Reader) {
	p.t.Helper()
	return p.rawFor(p.t, extensions)
}

func (p *peer) rawFor(t testing.TB, extensions string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n", extensions)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("handshake: %v %v", resp, err)
	}
	return c, r
}

const deflate = "Sec-WebSocket-Extensions: permessage-deflate\r\n"

// frame is one frame of a client; the mask is zero.
func frame(first byte, payload []byte) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	return append(append(out, 0, 0, 0, 0), payload...)
}

// closeOf reads until a close frame and returns its code, or 1006.
func closeOf(r *bufio.Reader) int {
	for {
		first, err := r.ReadByte()
		if err != nil {
			return Abnormal
		}
		n8, err := r.ReadByte()
		if err != nil {
			return Abnormal
		}
		n := int64(n8)
		switch n {
		case 126:
			var b [2]byte
			io.ReadFull(r, b[:])
			n = int64(binary.BigEndian.Uint16(b[:]))
		case 127:
			var b [8]byte
			io.ReadFull(r, b[:])
			n = int64(binary.BigEndian.Uint64(b[:]))
		}
		payload, err := io.ReadAll(io.LimitReader(r, n))
		if err != nil || int64(len(payload)) < n {
			return Abnormal
		}
		if first&0xf == websocket.CloseMessage {
			if len(payload) < 2 {
				return NoStatus
			}
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

func TestMessagesInOrder(t *testing.T) {
	p := start(t, config())
	for _, compress := range []bool{false, true} {
		c := p.dial(compress)
		want := [][]byte{nil, []byte("a"), bytes.Repeat([]byte("b"), 125), bytes.Repeat([]byte("c"), 126), bytes.Repeat([]byte("d"), 64<<10)}
		go func() {
			for i, m := range want {
				if i%2 == 0 {
					c.WriteMessage(websocket.BinaryMessage, m)
				} else {
					c.WriteMessage(websocket.TextMessage, m)
				}
			}
		}()
		for i, m := range want {
			kind, got, err := c.ReadMessage()
			if err != nil || !bytes.Equal(got, m) || (kind == websocket.BinaryMessage) != (i%2 == 0) {
				t.Fatalf("message %d: %d bytes of kind %d, %v", i, len(got), kind, err)
			}
		}
	}
}

func TestBreachesOfTheProtocol(t *testing.T) {
	p := start(t, config())
	var bomb bytes.Buffer
	w, _ := flate.NewWriter(&bomb, 9)
	zeros := make([]byte, 1<<20)
	for range 32 {
		w.Write(zeros)
	}
	w.Flush()
	if bomb.Len() > 60<<10 {
		t.Fatalf("the bomb has %d bytes", bomb.Len())
	}
	piece := bytes.Repeat([]byte("x"), 60<<10)
	for name, c := range map[string]struct {
		extensions string
		send       []byte
		code       int
	}{
		"too large":                      {"", frame(0x82, make([]byte, 70<<10)), TooLarge},
		"too large by its header":        {"", []byte{0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, TooLarge},
		"negative length":                {"", []byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, TooLarge},
		"fragments too large":            {"", append(frame(0x02, piece), frame(0x80, piece)...), TooLarge},
		"text that is not UTF-8":         {"", frame(0x81, []byte{0xff, 0xfe}), BadData},
		"unmasked":                       {"", []byte{0x81, 0x01, 'x'}, Protocol},
		"reserved bits":                  {"", frame(0xf1, []byte("x")), Protocol},
		"unknown kind":                   {"", frame(0x83, []byte("x")), Protocol},
		"compressed without agreement":   {"", frame(0xc1, []byte("x")), Protocol},
		"continuation of nothing":        {"", frame(0x80, []byte("x")), Protocol},
		"message within another":         {"", append(frame(0x01, []byte("x")), frame(0x81, []byte("y"))...), Protocol},
		"fragmented ping":                {"", frame(0x09, []byte("x")), Protocol},
		"long ping":                      {"", frame(0x89, make([]byte, 126)), Protocol},
		"close with a bad code":          {"", frame(0x88, []byte{0x03, 0xed}), Protocol},
		"close with one byte":            {"", frame(0x88, []byte{0x03}), NoStatus},
		"close with a bad reason":        {"", frame(0x88, []byte{0x03, 0xe8, 0xff}), Protocol},
		"compression bomb":               {deflate, frame(0xc2, bomb.Bytes()), TooLarge},
		"compressed nonsense":            {deflate, frame(0xc2, []byte{0xff, 0xff, 0xff, 0xff}), BadData},
		"close that the other side asks": {"", frame(0x88, append([]byte{0x0f, 0xa1}, "bye"...)), 4001},
		"fail of the handler":            {"", frame(0x81, []byte("fail")), Failed},
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := p.raw(c.extensions)
			go conn.Write(c.send)
			if code := closeOf(r); code != c.code {
				t.Errorf("closed with %d, want %d", code, c.code)
			}
			conn.Close()
			want := fmt.Sprint(c.code)
			if got := <-p.ends; got != want {
				t.Errorf("the handler was told %s, want %s", got, want)
			}
		})
	}
}

// TestHalfOpen: one that does not answer is ended, and one that answers is not.
func TestHalfOpen(t *testing.T) {
	cfg := config()
	cfg.Ping, cfg.Timeout = 50*time.Millisecond, 200*time.Millisecond
	p := start(t, cfg)
	dead, _ := p.raw("")
	defer dead.Close()
	// In the middle of a message it is as dead.
	half, _ := p.raw("")
	half.Write(frame(0x82, make([]byte, 100))[:50])
	if a, b := <-p.ends, <-p.ends; a != "1006" || b != "1006" {
		t.Errorf("%s %s", a, b)
	}

	// A busy machine may be late with a pong, so this one has a long time.
	cfg.Timeout = time.Minute
	q := start(t, cfg)
	c := q.dial(false)
	pings := make(chan struct{}, 100)
	c.SetPingHandler(func(data string) error {
		pings <- struct{}{}
		return c.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(time.Minute))
	})
	read := make(chan error, 1)
	go func() { _, _, err := c.ReadMessage(); read <- err }()
	for range 3 {
		<-pings
	}
	c.WriteMessage(websocket.TextMessage, []byte("here"))
	if err := <-read; err != nil {
		t.Error(err)
	}
}

func TestIdleSocketsAreClosed(t *testing.T) {
	cfg := config()
	cfg.Idle = 100 * time.Millisecond
	p := start(t, cfg)
	c := p.dial(false)
	if _, _, err := c.ReadMessage(); !websocket.IsCloseError(err, Idle) {
		t.Error(err)
	}
}

// hold has nothing written to a socket until release.
func (c *Conn) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = true
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writing = false
		c.startLocked()
	})
}

// upgraded waits until a socket has its connection, and writes nothing.
func (p *peer) upgraded(i int) *Conn {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c := p.conn(i)
		c.mu.Lock()
		ready := c.wire != nil && !c.writing
		c.mu.Unlock()
		if ready {
			return c
		}
		if time.Now().After(deadline) {
			p.t.Fatal("not upgraded")
		}
	}
}

// TestPongsAreAnsweredOnceAtATime: pings that come while nothing can be written
// cost no memory.
func TestPongsAreAnsweredOnceAtATime(t *testing.T) {
	p := start(t, config())
	conn, r := p.raw("")
	c := p.upgraded(0)
	release := c.hold()
	defer release()
	for i := range 100 {
		conn.Write(frame(0x89, []byte{byte(i)}))
	}
	conn.Write(frame(0x82, []byte("x"))) // its echo comes behind them
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		n, last := len(c.queue), c.bytes
		c.mu.Unlock()
		if n > 2 || time.Now().After(deadline) {
			t.Fatalf("%d frames wait", n)
		}
		if last > 0 {
			break
		}
	}
	release()
	conn.Write(frame(0x88, []byte{0x03, 0xe8}))
	if code := closeOf(r); code != 1000 {
		t.Error(code)
	}
}

// TestPingsWaitForMessages: the time for an answer to a ping begins when the ping
// has been written, behind what a slow client takes its time for.
func TestPingsWaitForMessages(t *testing.T) {
	cfg := config()
	cfg.Ping, cfg.Timeout = time.Hour, time.Minute
	p := start(t, cfg)
	_, r := p.raw("")
	c := p.upgraded(0)
	release := c.hold()
	defer release()
	now := time.Now().Add(2 * cfg.Ping)
	c.look(now)
	c.look(now.Add(2 * cfg.Timeout))
	c.look(now.Add(3 * cfg.Timeout))
	c.mu.Lock()
	ending, waits := c.ending, len(c.queue)
	c.mu.Unlock()
	if ending != nil || waits != 1 {
		t.Fatalf("ended with %v, %d frames wait", ending, waits)
	}
	release()
	if first, err := r.ReadByte(); err != nil || first != 0x89 {
		t.Errorf("%x %v", first, err)
	}
	p.upgraded(0)
	c.look(time.Now().Add(2 * cfg.Timeout))
	if got := <-p.ends; got != "1006" {
		t.Error(got)
	}
}

// TestSlowReader: it is cut off, and what waits for it is bounded.
func TestSlowReader(t *testing.T) {
	cfg := config()
	cfg.QueueLimit = 256 << 10
	p := start(t, cfg)
	conn, _ := p.raw("")
	defer conn.Close()
	c := p.conn(0)
	m := NewMessage(durable.SocketMessage{Data: make([]byte, 32<<10), Binary: true})
	for range 10000 {
		c.Send(m)
		c.mu.Lock()
		bytes, ending := c.bytes, c.ending
		c.mu.Unlock()
		if bytes > cfg.QueueLimit {
			t.Fatalf("%d bytes wait", bytes)
		}
		if ending != nil {
			break
		}
	}
	if got := <-p.ends; got != "1008" {
		t.Error(got)
	}
}

func TestCloseAll(t *testing.T) {
	p := start(t, config())
	var clients []*websocket.Conn
	for range 20 {
		clients = append(clients, p.dial(false))
	}
	p.raw("") // it never answers
	codes := make(chan error, len(clients))
	for _, c := range clients {
		go func() { _, _, err := c.ReadMessage(); codes <- err }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.hub.CloseAll(ctx, Interrupted, "restart"); err != nil {
		t.Error(err)
	}
	for range clients {
		if err := <-codes; !websocket.IsCloseError(err, Interrupted) {
			t.Error(err)
		}
	}
	if _, err := p.hub.New(nil); err != ErrClosing {
		t.Error(err)
	}
}

func TestSameOrigin(t *testing.T) {
	base, _ := url.Parse("https://pods.example")
	for _, c := range []struct {
		origin, host string
		want         bool
	}{
		{"https://pods.example", "pods.example", true}, {"HTTPS://PODS.example:443", "x", true},
		{"http://pods.example", "pods.example", false}, {"https://pods.example:8443", "pods.example:8443", false},
		{"https://evil.example", "evil.example", false}, {"null", "", false}, {"", "", false}, {"https://", "", false},
		{"https://pods.example.evil.example", "pods.example", false}, {"https://user@evil.example", "pods.example", false},
		{"http://localhost:8080", "localhost:8080", true}, {"http://localhost:3000", "localhost:8080", false},
		{"http://127.0.0.1:1", "127.0.0.1:1", true}, {"http://[::1]:1", "[::1]:1", true}, {"file://localhost", "localhost", false},
	} {
		if got := SameOrigin(c.origin, base, c.host); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// FuzzFrames sends what no client would: the socket ends, and only whole messages
// within the limits come through.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(""), false)
	f.Add(frame(0x81, []byte("hello")), false)
	f.Add(append(frame(0x01, []byte("he")), frame(0x80, []byte("llo"))...), false)
	f.Add(append(frame(0x89, []byte("ping")), frame(0x88, []byte{0x03, 0xe8})...), true)
	f.Add(frame(0xc1, []byte{0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00}), true)
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, true)
	p := start(f, config())
	f.Fuzz(func(t *testing.T, data []byte, compressed bool) {
		extensions := ""
		if compressed {
			extensions = deflate
		}
		conn, r := p.rawFor(t, extensions)
		conn.Write(data)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, r) // until the socket has ended
		conn.Close()
		select {
		case <-p.ends:
		case <-time.After(time.Minute):
			t.Fatal("the handler was not told")
		}
	})
}

// FuzzHandshake sends any request.
func FuzzHandshake(f *testing.F) {
	f.Add("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x80\x00\x00\x00\x00")
	f.Add("GET / HTTP/1.1\r\nHost: x\r\nOrigin: null\r\n\r\n")
	p := start(f, config())
	f.Fuzz(func(t *testing.T, request string) {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, request)
		c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode == 101 {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
			if err != nil || Check(r, nil) != nil {
				t.Errorf("upgraded %q", request)
			}
		}
	})
}

// BenchmarkIdle measures what an idle socket takes, both ends and their kernel
// buffers left out but the goroutine, which waits in a read.
func BenchmarkIdle(b *testing.B) {
	const n = 4000
	p := start(b, config())
	var conns []net.Conn
	measure := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := measure()
	for range n {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			b.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
		var answer [64]byte
		if _, err := c.Read(answer[:]); err != nil {
			b.Fatal(err)
		}
		conns = append(conns, c)
	}
	for range b.N {
	}
	b.ReportMetric(float64(measure()-before)/n, "bytes/socket")
	for _, c := range conns {
		c.Close()
	}
}

// What comes in on all sockets together is bounded: the one that would exceed it
// is closed, the others go on.
func TestIncoming(t *testing.T) {
	cfg := config()
	cfg.Incoming = 40 << 10
	p := start(t, cfg)
	patient, answers := p.raw("")
	other := p.dial(false)
	write := func(c net.Conn, b []byte) {
		t.Helper()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(what string, ok func(n int64) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(p.hub.incoming.Load()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d bytes come in", what, p.hub.incoming.Load())
			}
		}
	}
	write(patient, frame(websocket.BinaryMessage, make([]byte, 30<<10))) // and no end
	wait("the first half", func(n int64) bool { return n == 30<<10 })
	for range 3 {
		if err := other.WriteMessage(websocket.BinaryMessage, make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
		if _, m, err := other.ReadMessage(); err != nil || len(m) != 8<<10 {
			t.Fatalf("%d bytes, %v", len(m), err)
		}
	}
	wait("the other's messages are done", func(n int64) bool { return n == 30<<10 })
	crowding, _ := p.raw("")
	write(crowding, frame(0x80|websocket.BinaryMessage, make([]byte, 20<<10)))
	if got := <-p.ends; got != "1013" {
		t.Error(got)
	}
	wait("what is closed is not counted", func(n int64) bool { return n == 30<<10 })
	write(patient, frame(0x80, make([]byte, 1<<10)))
	if first, err := answers.ReadByte(); err != nil || first != 0x80|websocket.BinaryMessage {
		t.Errorf("%x %v", first, err)
	}
	wait("nothing comes in", func(n int64) bool { return n == 0 })
}
