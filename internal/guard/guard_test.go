package guard

import (
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublic(t *testing.T) {
	for addr, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "93.184.216.34": true, "172.15.255.255": true, "172.32.0.0": true, "100.63.255.255": true,
		"100.128.0.0": true, "192.0.1.0": true, "198.17.255.255": true, "198.20.0.0": true, "223.255.255.255": true, "11.0.0.0": true,
		"2606:4700::1111": true, "2a00:1450::1": true, "2001:200::1": true, "2001:4860:4860::8888": true,
		"::ffff:1.1.1.1": true, "64:ff9b::1.1.1.1": true,

		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "10.255.255.255": false, "100.64.0.1": false, "100.127.255.255": false,
		"127.0.0.1": false, "127.255.255.255": false, "169.254.169.254": false, "172.16.0.1": false, "172.31.255.255": false,
		"192.0.0.1": false, "192.0.0.192": false, "192.0.2.1": false, "192.88.99.1": false, "192.168.0.1": false, "198.18.0.1": false,
		"198.19.255.255": false, "198.51.100.1": false, "203.0.113.1": false, "224.0.0.1": false, "239.255.255.255": false,
		"240.0.0.1": false, "255.255.255.255": false, "168.63.129.16": false,
		"::": false, "::1": false, "::127.0.0.1": false, "::1.1.1.1": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false,
		"fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "100::1": false, "5f00::1": false, "4000::1": false,
		"2001::1": false, "2001:10::1": false, "2001:20::1": false, "2001:db8::1": false, "3fff::1": false,
		"2002:7f00:1::": false, "2002:101:101::": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:0:127.0.0.1": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false, "64:ff9b:1::1.1.1.1": false, "2606:4700::1%x": false,
	} {
		if got := Public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Public(%s) = %t", addr, got)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("the zero address is public")
	}
}

func TestURLs(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	c := NewClient(Config{})
	for _, u := range []string{
		"ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "http:///x",
		"http://user:pass@example.com/", "https://user@example.com/",
		"http://example.com:22/", "https://example.com:8443/", "http://1.1.1.1:81/",
		"http://127.0.0.1/", "http://127.0.0.1:443/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://[::]/",
		"http://10.1.2.3/", "http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[::ffff:127.0.0.1]/",
		"http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "https://192.168.1.1/",
	} {
		res, err := c.Get(u)
		if err == nil {
			res.Body.Close()
		}
		if !errors.Is(err, ErrRefused) && !strings.Contains(fmt.Sprint(err), "no Host in request URL") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// world is a server that counts requests, and a client that may call it.
type world struct {
	*httptest.Server
	client *http.Client
	calls  atomic.Int64
}

func newWorld(t *testing.T, cfg Config, h http.HandlerFunc) *world {
	t.Helper()
	w := &world{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		h(rw, r)
	}))
	at := w.Listener.Addr().(*net.TCPAddr).AddrPort()
	allow := netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	cfg.Allow = func(ap netip.AddrPort) bool { return ap == allow }
	w.client = NewClient(cfg)
	t.Cleanup(w.Close)
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func TestRedirects(t *testing.T) {
	var inside atomic.Int64
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer private.Close()
	w := newWorld(t, Config{}, func(rw http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/hops/%d", &n); err == nil && n > 0 {
			http.Redirect(rw, r, fmt.Sprintf("/hops/%d", n-1), http.StatusFound)
			return
		}
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(rw, r, to, http.StatusTemporaryRedirect)
		}
	})
	for path, want := range map[string]error{
		"/hops/5":                   nil,
		"/hops/6":                   ErrRedirects,
		"/?to=" + private.URL:       ErrRefused,
		"/?to=http://169.254.1.1/":  ErrRefused,
		"/?to=http://localhost/":    ErrRefused,
		"/?to=file:///etc/passwd":   ErrRefused,
		"/?to=http://a:b@1.1.1.1/":  ErrRefused,
		"/?to=//[::ffff:10.0.0.1]/": ErrRefused,
	} {
		res, err := w.client.Get(w.URL + path)
		if err == nil {
			res.Body.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if inside.Load() != 0 {
		t.Error("reached the private server")
	}
}

func TestCredentialsStayHome(t *testing.T) {
	var seen http.Header
	w := newWorld(t, Config{}, func(rw http.ResponseWriter, r *http.Request) {
		host, port, _ := net.SplitHostPort(r.Host)
		switch r.URL.Path {
		case "/away":
			http.Redirect(rw, r, "http://sub."+host+":"+port+"/see", http.StatusFound)
		case "/back":
			http.Redirect(rw, r, "http://sub."+host+":"+port+"/home", http.StatusFound)
		case "/home":
			http.Redirect(rw, r, "http://"+strings.TrimPrefix(host, "sub.")+":"+port+"/see", http.StatusFound)
		case "/near":
			http.Redirect(rw, r, "/see", http.StatusFound)
		case "/see":
			seen = r.Header.Clone()
		}
	})
	// Both names are the one server that may be called.
	w.client.Transport.(*transport).next.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, w.Listener.Addr().String())
	}
	_, port, _ := net.SplitHostPort(w.Listener.Addr().String())
	for path, kept := range map[string]bool{"/away": false, "/back": false, "/near": true, "/see": true} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://example.test:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			r.Header.Set(name, "a=secret")
		}
		r.Header.Set("Accept", "text/plain")
		res, err := w.client.Do(r)
		if err != nil {
			t.Fatal(path, err)
		}
		res.Body.Close()
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			if got := seen.Get(name) != ""; got != kept {
				t.Errorf("%s: %s kept: %t", path, name, got)
			}
		}
		if !kept && seen.Get("Referer") != "" {
			t.Errorf("%s: Referer %q", path, seen.Get("Referer"))
		}
		if seen.Get("Accept") != "text/plain" {
			t.Errorf("%s: Accept %q", path, seen.Get("Accept"))
		}
	}
}

func TestBodyBound(t *testing.T) {
	const limit = 100_000
	w := newWorld(t, Config{MaxBody: limit}, func(rw http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Sscanf(r.URL.Query().Get("n"), "%d", &n)
		var out io.Writer = rw
		switch r.URL.Path {
		case "/announced":
			rw.Header().Set("Content-Length", fmt.Sprint(n))
		case "/gzip":
			rw.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(rw)
			defer z.Close()
			out = z
		}
		io.Copy(out, io.LimitReader(zeros{}, int64(n)))
	})
	for _, path := range []string{"/announced", "/chunked", "/gzip"} {
		for n, want := range map[int]error{0: nil, limit - 1: nil, limit: nil, limit + 1: ErrTooLarge, 3 * limit: ErrTooLarge} {
			got, err := read(w.client, fmt.Sprintf("%s%s?n=%d", w.URL, path, n))
			if !errors.Is(err, want) || got > limit || (want == nil && got != int64(n)) {
				t.Errorf("%s of %d: %d bytes, %v", path, n, got, err)
			}
		}
	}
	res, err := w.client.Head(w.URL + "/announced?n=99999999")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

func read(c *http.Client, url string) (int64, error) {
	res, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return io.Copy(io.Discard, res.Body)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, Config{Timeout: 50 * time.Millisecond}, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			io.WriteString(rw, "begun")
			rw.(http.Flusher).Flush()
		}
		<-release
	})
	defer close(release)
	for _, path := range []string{"/header", "/body"} {
		if _, err := read(w.client, w.URL+path); !errors.Is(err, context.DeadlineExceeded) && !os.IsTimeout(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRebinding has a name that resolves to the permitted address first and to
// another later: each connection is judged by the address it goes to.
func TestRebinding(t *testing.T) {
	var private atomic.Bool
	resolver := dns(t, func() [4]byte {
		if private.Load() {
			return [4]byte{127, 0, 0, 2}
		}
		return [4]byte{127, 0, 0, 1}
	})
	w := newWorld(t, Config{Resolver: resolver}, func(http.ResponseWriter, *http.Request) {})
	w.client.Transport.(*transport).next.DisableKeepAlives = true
	_, port, _ := net.SplitHostPort(w.Listener.Addr().String())
	url := "http://rebind.test:" + port
	if _, err := read(w.client, url); err != nil {
		t.Fatal(err)
	}
	private.Store(true)
	if _, err := read(w.client, url); !errors.Is(err, ErrRefused) {
		t.Errorf("after rebinding: %v", err)
	}
	if n := w.calls.Load(); n != 1 {
		t.Errorf("%d calls arrived", n)
	}
}

// dns is a resolver whose server answers every A question with addr.
func dns(t *testing.T, addr func() [4]byte) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(dnsAnswer(buf[:n], addr()), from)
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func dnsAnswer(query []byte, ip [4]byte) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root label, type and class
	kind := binary.BigEndian.Uint16(query[end-4:])
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	if kind == 1 {
		answer[7] = 1
		answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		answer = append(answer, ip[:]...)
	}
	return answer
}
