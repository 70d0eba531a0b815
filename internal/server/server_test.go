package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func listen(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Name, cfg.Addr = "public", "127.0.0.1:0"
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start serves in the background; the function it returns waits for the end.
func start(t *testing.T, s *Server, h http.Handler) (ended func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(h) }()
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestListenConflict(t *testing.T) {
	s := listen(t, Config{})
	if !s.Loopback() {
		t.Error("not loopback")
	}
	_, err := Listen(t.Context(), Config{Name: "admin", Addr: s.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "admin listener") || !strings.Contains(err.Error(), s.Addr().String()) {
		t.Errorf("second listener: %v", err)
	}
	if _, err := Listen(t.Context(), Config{Addr: "127.0.0.1:0", Cert: "/nonexistent.pem"}); err == nil {
		t.Error("missing certificate accepted")
	}
}

func TestShutdownCompletesRequests(t *testing.T) {
	s := listen(t, Config{})
	entered, release := make(chan struct{}), make(chan struct{})
	ended := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		if r.Context().Err() != nil {
			t.Error("a graceful stop ended the request's context")
		}
		io.WriteString(w, "whole")
	}))
	var wg sync.WaitGroup
	c := client(t)
	wg.Go(func() {
		res, err := c.Get("http://" + s.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		if b, err := io.ReadAll(res.Body); string(b) != "whole" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
	<-entered
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(t.Context()) }()
	ended() // the listener is closed while the request still runs
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("accepts while it stops")
	}
	close(release)
	if err := <-down; err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestShutdownGivesUp(t *testing.T) {
	s := listen(t, Config{})
	entered := make(chan struct{})
	ended := start(t, s, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	}))
	var wg sync.WaitGroup
	c := client(t)
	wg.Go(func() {
		if res, err := c.Get("http://" + s.Addr().String()); err == nil {
			res.Body.Close()
		}
	})
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 requests") {
		t.Errorf("shutdown: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := s.active.Load(); n != 0 {
		t.Errorf("%d handlers left", n)
	}
	ended()
	wg.Wait()
}

func TestCloseWithoutServe(t *testing.T) {
	s := listen(t, Config{})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Serve(http.NotFoundHandler()); err != nil {
		t.Errorf("serve after shutdown: %v", err)
	}
	if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
		c.Close()
		t.Error("still listens")
	}
}

func TestHeaderBounds(t *testing.T) {
	ask := func(cfg Config, request string) string {
		s := listen(t, cfg)
		ended := start(t, s, http.NotFoundHandler())
		defer func() {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			ended()
		}()
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, request)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line)
	}
	if got := ask(Config{HeaderBytes: 4 << 10, HeaderTimeout: time.Minute}, "GET / HTTP/1.1\r\nHost: x\r\nA: "+strings.Repeat("a", 16<<10)+"\r\n\r\n"); !strings.Contains(got, " 431 ") {
		t.Errorf("large header: %q", got)
	}
	if got := ask(Config{HeaderBytes: 4 << 10, HeaderTimeout: 50 * time.Millisecond}, "GET / HTTP/1.1\r\nHost: x\r\n"); got != "" && !strings.Contains(got, " 408 ") { // the server gives up on it
		t.Errorf("endless header: %q", got)
	}
}

func TestTLS(t *testing.T) {
	cert, key, pool := selfSigned(t)
	lines := make(chan string, 8)
	s := listen(t, Config{Cert: cert, Key: key, Logger: slog.New(slog.NewTextHandler(sink(lines), nil))})
	ended := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	for _, h2 := range []bool{false, true} {
		c := client(t)
		tr := c.Transport.(*http.Transport)
		tr.TLSClientConfig, tr.ForceAttemptHTTP2 = &tls.Config{RootCAs: pool}, h2
		res, err := c.Get("https://" + s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]; string(b) != want {
			t.Errorf("%s, want %s", b, want)
		}
		tr.CloseIdleConnections()
	}
	// What goes wrong before there is a request is an event too.
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "not a handshake\r\n\r\n")
	if line := <-lines; !strings.Contains(line, "level=WARN msg=http.error listener=public error=\"http: TLS handshake error") {
		t.Errorf("logged %s", line)
	}
	conn.Close()
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	ended()
}

// A sink takes the lines of a log.
type sink chan<- string

func (s sink) Write(line []byte) (int, error) { s <- string(line); return len(line), nil }

func selfSigned(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", private), pool
}

// The server forgets a hijacked connection; its handler learns of the end from
// its context alone.
func TestCloseEndsHijacked(t *testing.T) {
	s := listen(t, Config{})
	entered := make(chan struct{})
	ended := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		close(entered)
		<-r.Context().Done()
	}))
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	ended()
}
