package libsql

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

const (
	// bodyLimit bounds an answer as it is sent; it leaves room for escapes
	// above answerLimit.
	bodyLimit = 12 << 20
	// messageLimit bounds what is read of an answer that is an error.
	messageLimit = 64 << 10
)

// A wire is a server that speaks Hrana over HTTP. It keeps no stream open: each
// call is one request that also closes its stream. The database/sql driver of
// the same protocol is no base for this, as it loses the codes of errors and
// sends several requests.
type wire struct {
	base      string
	header    http.Header
	timeout   time.Duration
	transport *http.Transport
	client    *http.Client
	closing   sync.WaitGroup // closes of finished cursors
}

func openWire(u *url.URL, cfg Config) (*wire, error) {
	w := &wire{base: u.String(), header: http.Header{}, timeout: cfg.Timeout}
	w.header.Set("Content-Type", "application/json")
	if strings.ContainsAny(cfg.Token+cfg.Namespace, "\r\n\x00") {
		return nil, errors.New("database: the token or namespace holds a control character")
	}
	if cfg.Token != "" {
		w.header.Set("Authorization", "Bearer "+cfg.Token)
	}
	if cfg.Namespace != "" {
		w.header.Set("X-Namespace", cfg.Namespace)
	}
	var err error
	if w.transport, err = NewTransport(cfg); err != nil {
		return nil, err
	}
	w.client = &http.Client{
		Transport:     w.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// NewTransport returns the way to the server of a configuration: its
// certificates, bounds and connections, which are used by one request at a
// time. Another client of the same server takes one of its own.
func NewTransport(cfg Config) (*http.Transport, error) {
	cfg = cfg.WithDefaults()
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request a connection: what was written is certain
	dialer := &net.Dialer{Timeout: cfg.Timeout, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: c}, nil
		},
		Protocols:           &protocols,
		MaxIdleConns:        cfg.MaxConns,
		MaxIdleConnsPerHost: cfg.MaxConns,
		MaxConnsPerHost:     cfg.MaxConns,
		IdleConnTimeout:     60 * time.Second,
		TLSHandshakeTimeout: cfg.Timeout,
		WriteBufferSize:     64 << 10, // a request is one write, also one for several plans
		DisableCompression:  true,     // most of what is big is compressed already
	}
	if cfg.CA != "" {
		pool, err := certificates(cfg.CA)
		if err != nil {
			return nil, err
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return t, nil
}

func certificates(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("database CA: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("database CA: %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

func (w *wire) close() error {
	w.closing.Wait()
	w.transport.CloseIdleConnections()
	return nil
}

// post sends one request; the answer has status 200.
func (w *wire) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	ctx, nothingSent := TraceSending(ctx)
	// net/http repeats a POST with such a body only when it was given a
	// connection that turned out closed before anything was written to it.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, refused(KindUnreachable, errors.New("the request could not be made"))
	}
	req.Header = w.header
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, transportError(ctx, nothingSent(), err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, messageLimit)) // the status says enough
	return nil, statusError(resp, text)
}

// transportError is the error of a request without an answer.
func transportError(ctx context.Context, nothingSent bool, err error) *Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the method and URL
	}
	e := &Error{Outcome: Unknown, Kind: KindUnreachable, Statement: -1, Err: err}
	if nothingSent {
		e.Outcome = Refused
	}
	if timeout := net.Error(nil); ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		e.Kind = KindTimeout
	}
	return e
}

// statusError is the error of an answer that is not 200. Only the statuses of
// sqld that say so are refusals; a gateway's may come after the server executed.
func statusError(resp *http.Response, text []byte) *Error {
	message, code := serverMessage(text)
	if message == "" {
		message = http.StatusText(resp.StatusCode)
	}
	e := &Error{Outcome: Unknown, Kind: KindUnreachable, Code: code, Statement: -1, Err: fmt.Errorf("HTTP status %d: %s", resp.StatusCode, message)}
	switch s := resp.StatusCode; {
	case s == http.StatusBadRequest:
		e.Outcome, e.Kind = Refused, KindProtocol
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		e.Outcome, e.Kind = Refused, KindAuth
	case s == http.StatusNotFound:
		e.Outcome = Refused
	case s == http.StatusRequestEntityTooLarge:
		e.Outcome, e.Kind = Refused, KindTooLarge
	case s == http.StatusTooManyRequests:
		e.Outcome, e.Kind = Refused, KindLimit
	case s/100 == 3:
		e.Kind, e.Err = KindProtocol, fmt.Errorf("HTTP status %d: a redirection, which is not followed", s)
	case s/100 != 5:
		e.Kind = KindProtocol
	}
	return e
}

// serverMessage reads the forms that sqld's errors have: JSON with the member
// error, or with message and code, or plain text.
func serverMessage(text []byte) (message, code string) {
	var m struct{ Error, Message, Code string }
	if json.Unmarshal(text, &m) == nil {
		message, code = m.Error+m.Message, m.Code
	} else {
		message = string(text)
	}
	return printable(message, 300), printable(code, 60)
}

// printable cuts a foreign text to one line of at most n bytes.
func printable(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, s[:min(len(s), n)])
	return strings.TrimSpace(s)
}

// serverError is the error of a statement or request that executed.
func serverError(outcome Outcome, statement int, e *proto.Error) *Error {
	code, message := printable(e.Code, 60), printable(e.Message, 1000)
	if message == "" {
		message = "an error without a text, code " + code
	}
	return &Error{Outcome: outcome, Kind: classify(code, message), Code: code, Statement: statement, Err: errors.New(message)}
}

// oddAnswer is the error of an answer that cannot be understood.
func oddAnswer(format string, args ...any) *Error {
	return &Error{Outcome: Unknown, Kind: KindProtocol, Statement: -1, Err: fmt.Errorf("an answer that is not Hrana: "+format, args...)}
}

// A countedConn counts the writes that began.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TraceSending returns the context for one request of a transport of
// [NewTransport], and what tells after an error whether nothing of it was sent.
func TraceSending(ctx context.Context) (_ context.Context, nothingSent func() bool) {
	var s sending
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.gotConn}), s.nothing
}

// A sending knows whether a request began to be written. net/http closes the
// connection before it returns an error, so a write that has not begun by then
// fails.
type sending struct {
	mu   sync.Mutex
	conn *countedConn
	at   int64
	odd  bool // a connection of another kind: nothing is known
}

func (s *sending) gotConn(info httptrace.GotConnInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := info.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	s.conn, _ = c.(*countedConn)
	if s.odd = s.conn == nil; !s.odd {
		s.at = s.conn.writes.Load()
	}
}

func (s *sending) nothing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.odd && (s.conn == nil || s.conn.writes.Load() == s.at)
}
