// Package guard is the HTTP client for addresses that strangers chose. It
// reaches the public Internet only, and bounds what an answer may cost.
//
// The address is checked when it is dialled, after the name was resolved and on
// every redirect, so that a name which resolves to something else the second
// time gains nothing.
package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Errors of the client, to be found with [errors.Is] in what a call returns.
var (
	// ErrRefused: the URL, or the address that its host resolves to, is not one
	// that the client may call.
	ErrRefused = errors.New("address refused")
	// ErrTooLarge: the answer's body is over the limit.
	ErrTooLarge = errors.New("answer too large")
	// ErrRedirects: there were too many redirects.
	ErrRedirects = errors.New("too many redirects")
)

const maxRedirects = 5

// Config bounds a client. Zero values mean the defaults.
type Config struct {
	// Timeout bounds a whole call, the reading of the body included; 30 s.
	Timeout time.Duration
	// MaxBody bounds an answer's body in bytes, after decompression; 10 MiB.
	MaxBody int64
	// Ports may be called; 80 and 443.
	Ports []uint16
	// Allow, when not nil, permits addresses that would be refused.
	Allow func(netip.AddrPort) bool
	// Resolver resolves names; nil is the system's.
	Resolver *net.Resolver
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 10 << 20
	}
	if len(c.Ports) == 0 {
		c.Ports = []uint16{80, 443}
	}
	return c
}

// NewClient returns a client that is safe for addresses that strangers chose.
// It uses no proxy and keeps no cookies, follows at most five redirects, and
// sends nothing but harmless headers on when a redirect leads to another
// origin. Its idle connections end with CloseIdleConnections.
func NewClient(cfg Config) *http.Client {
	cfg = cfg.withDefaults()
	dialer := &net.Dialer{
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		Resolver:  cfg.Resolver,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return cfg.checkAddress(network, address)
		},
	}
	return &http.Client{
		Timeout:       cfg.Timeout,
		CheckRedirect: checkRedirect,
		Transport: &transport{cfg: cfg, next: &http.Transport{
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           32,
			MaxIdleConnsPerHost:    2,
			MaxConnsPerHost:        16,
			IdleConnTimeout:        30 * time.Second,
			ForceAttemptHTTP2:      true,
		}},
	}
}

// checkAddress runs between the resolution of a name and the connection.
func (c Config) checkAddress(network, address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || (network != "tcp4" && network != "tcp6") {
		return fmt.Errorf("%w: %s %s", ErrRefused, network, address)
	}
	if c.Allow != nil && c.Allow(netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())) {
		return nil
	}
	if !slices.Contains(c.Ports, ap.Port()) {
		return fmt.Errorf("%w: port %d", ErrRefused, ap.Port())
	}
	if !Public(ap.Addr()) {
		return fmt.Errorf("%w: %s is not on the public Internet", ErrRefused, ap.Addr())
	}
	return nil
}

// transport checks URLs on the way out and bounds bodies on the way in.
type transport struct {
	cfg  Config
	next *http.Transport
}

func (t *transport) CloseIdleConnections() { t.next.CloseIdleConnections() }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.cfg.checkURL(r.URL); err != nil {
		if r.Body != nil {
			r.Body.Close() //nolint:errcheck // never read
		}
		return nil, err
	}
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.ContentLength > t.cfg.MaxBody && r.Method != http.MethodHead {
		res.Body.Close() //nolint:errcheck // never read
		return nil, fmt.Errorf("%w: %d bytes announced, at most %d taken", ErrTooLarge, res.ContentLength, t.cfg.MaxBody)
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: t.cfg.MaxBody, limit: t.cfg.MaxBody}
	return res, nil
}

// checkURL refuses what can be refused without a look at the address. A port
// that is not permitted may still be one that Allow permits.
func (c Config) checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%w: scheme %q", ErrRefused, u.Scheme)
	case u.Hostname() == "":
		return fmt.Errorf("%w: no host", ErrRefused)
	case u.User != nil:
		return fmt.Errorf("%w: the URL has a user name", ErrRefused)
	case u.Port() != "" && c.Allow == nil:
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || !slices.Contains(c.Ports, uint16(port)) {
			return fmt.Errorf("%w: port %s", ErrRefused, u.Port())
		}
	}
	return nil
}

// harmless are the headers that a redirect may take to another origin. All
// others may be, or hold, credentials meant for the first one.
var harmless = []string{"Accept", "Accept-Language", "Content-Type", "User-Agent"}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w: more than %d", ErrRedirects, maxRedirects)
	}
	// The client builds each request from the headers of the first one: a way
	// back to the first origin, too, is a way that another one chose.
	crossed := slices.ContainsFunc(append(via[1:len(via):len(via)], r), func(hop *http.Request) bool {
		return hop.URL.Scheme != via[0].URL.Scheme || hop.URL.Host != via[0].URL.Host
	})
	if !crossed {
		return nil
	}
	for name := range r.Header {
		if !slices.Contains(harmless, name) {
			delete(r.Header, name)
		}
	}
	return nil
}

// boundedBody fails a read of more than the limit.
type boundedBody struct {
	io.ReadCloser
	left, limit int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, b.tooLarge()
	}
	// One byte more than is left tells a body of the limit from a longer one.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, b.tooLarge()
	}
	return n, err
}

func (b *boundedBody) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, b.limit)
}
