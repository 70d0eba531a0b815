package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// NamePrefix begins the names of all objects that a load makes.
	NamePrefix = "bench-"

	requestTimeout = time.Minute
	noteSize       = 256     // bytes of a note's body
	maxAnswer      = 1 << 20 // bytes of an answer that are read
)

// A Lab is the lab application of one or more replicas. Clients are dealt out
// to the replicas in turn, and each keeps to its own.
type Lab struct {
	urls   []string
	seed   uint64
	note   []byte
	client *http.Client
}

// NewLab returns the lab at the URLs, each with the path of its mount. Close
// ends its connections.
func NewLab(urls []string, seed uint64) (*Lab, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL of a lab")
	}
	l := &Lab{seed: seed, note: make([]byte, noteSize)}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return nil, fmt.Errorf("%q is not the URL of a lab, such as http://localhost:8080/lab", s)
		}
		l.urls = append(l.urls, strings.TrimRight(u.String(), "/"))
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range l.note {
		l.note[i] = byte('a' + random.IntN(26))
	}
	l.client = &http.Client{
		Timeout:       requestTimeout,
		Transport:     &http.Transport{MaxIdleConnsPerHost: maxClients, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l, nil
}

// Close ends the connections.
func (l *Lab) Close() { l.client.CloseIdleConnections() }

// Name returns the name of an object.
func (l *Lab) Name(object int) string {
	return NamePrefix + strconv.FormatUint(l.seed, 10) + "-" + strconv.Itoa(object)
}

// Do implements [Target].
func (l *Lab) Do(ctx context.Context, client int, op Op) Answer {
	method, path, status := http.MethodPost, "/counter/", http.StatusOK
	var body io.Reader
	path += l.Name(op.Object)
	switch op.Kind {
	case Read:
		method = http.MethodGet
	case Increment:
		path += "/add"
	case CreateCounter:
		path += "/add?n=0"
	default:
		method, path, status, body = http.MethodPut, "/note/"+l.Name(op.Object), http.StatusNoContent, bytes.NewReader(l.note)
	}
	req, err := http.NewRequestWithContext(ctx, method, l.urls[client%len(l.urls)]+path, body)
	if err != nil {
		return Answer{Status: "bad request"}
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return Answer{Status: failure(err)}
	}
	defer resp.Body.Close()
	a := Answer{Status: strconv.Itoa(resp.StatusCode), Replica: resp.Header.Get("Dwk-Replica")}
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)); err != nil {
		a.Status = failure(err)
		return a
	}
	a.OK = resp.StatusCode == status || status == http.StatusNoContent && resp.StatusCode == http.StatusCreated
	return a
}

// failure is the word for a request without an answer.
func failure(err error) string {
	n, timed := errors.AsType[net.Error](err)
	switch {
	case timed && n.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		return "connection lost"
	default:
		return "no answer"
	}
}
