package fleettest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// smallBuffer is what a slow client has the system keep for a connection, in
// bytes, so that what it does not read stays with whoever sends it.
const smallBuffer = 128 << 10

// dialSmall connects with a small buffer for what arrives.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(smallBuffer)
	}
	return c, err
}

// slowClient sends a request once, as client does.
var slowClient = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dialSmall},
	Timeout:   2 * time.Minute,
}

// content is a body that can be told from any other.
func content(seed uint64, size int) []byte {
	random := rand.New(rand.NewPCG(seed, uint64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = 'a' + byte(random.IntN(26))
	}
	return b
}

// A pacer passes a body of a known size on in small pieces, at such times that
// all of it takes a while.
type pacer struct {
	io.Reader
	ctx   context.Context
	size  int
	takes time.Duration
	began time.Time
	done  int
}

// piece is the most that a pacer passes on at a time.
const piece = 4 << 10

func (p *pacer) Read(b []byte) (int, error) {
	if p.began.IsZero() {
		p.began = time.Now()
	}
	b = b[:min(len(b), piece, max(1, p.size/50))]
	due := time.Duration(float64(p.takes) * float64(p.done+len(b)) / float64(p.size))
	select {
	case <-time.After(min(p.takes, due) - time.Since(p.began)):
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
	n, err := p.Reader.Read(b)
	p.done += n
	return n, err
}

// Upload sends a body to a path of the lab that takes so long to arrive.
func (r *Replica) Upload(ctx context.Context, path string, body []byte, takes time.Duration) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.Public+"/lab/"+path, &pacer{Reader: bytes.NewReader(body), ctx: ctx, size: len(body), takes: takes})
	if err != nil {
		return Answer{Err: err}
	}
	req.ContentLength = int64(len(body))
	res, err := slowClient.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: string(b), Err: err}
}

// Download gets a body of this size from a path of the lab and takes so long to
// read it.
func (r *Replica) Download(ctx context.Context, path string, size int, takes time.Duration) Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Public+"/lab/"+path, nil)
	if err != nil {
		return Answer{Err: err}
	}
	res, err := slowClient.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer res.Body.Close()
	a := Answer{Status: res.StatusCode, Header: res.Header}
	var got bytes.Buffer
	if _, err := io.Copy(&got, &pacer{Reader: res.Body, ctx: ctx, size: size, takes: takes}); err != nil {
		return Answer{Header: res.Header, Err: fmt.Errorf("answer %d was cut off after %d bytes: %w", res.StatusCode, got.Len(), err)}
	}
	a.Body = got.String()
	return a
}
