package durabletest

import (
	"io"
	"net/http"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// An Answer is what a request was answered, as a whole.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	// Err is why there is no answer, or not all of it: a connection that was cut
	// or, from [Host.Object], the host's error.
	Err error
}

// Do sends a request to the first application, with a body unless that is "". The
// path is one below its mount.
func (h *Host) Do(method, path, body string) Answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.URL()+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	return h.Send(r)
}

// Send sends a request, which it does not repeat.
func (h *Host) Send(r *http.Request) Answer {
	c := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := c.Do(r)
	return whole(resp, err)
}

// Object delivers a request to an object without the front door, as an event.
func (h *Host) Object(class, name, method, path, body string) Answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.apps[0].Name+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatalf("durabletest: %v", err)
	}
	return h.Call(class, name, r)
}

// Call is Object with a request of one's own.
func (h *Host) Call(class, name string, r *http.Request) Answer {
	h.t.Helper()
	resp, err := h.stub(class, name).Do(r)
	return whole(resp, err)
}

func (h *Host) stub(class, name string) durable.Stub {
	h.t.Helper()
	ns := h.Env().Namespace(class)
	return ns.Get(ns.ID(name))
}

func whole(resp *http.Response, err error) Answer {
	if err != nil {
		return Answer{Err: err}
	}
	body, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(body), Err: err}
}
