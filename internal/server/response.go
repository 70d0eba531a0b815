package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A response counts what is written and completes the headers when the header
// is sent, so that what an application set wins over the defaults.
type response struct {
	http.ResponseWriter
	defaults http.Header // set when the handler set none
	fixed    http.Header // set in any case, unless the handler set nil

	mount    string // for the access log
	quiet    bool   // logged for debugging only
	status   int    // 0 until the header is sent
	bytes    int64
	hijacked bool
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	// All but 101 of the 1xx answers are followed by another.
	informational := status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
	if w.status == 0 && !informational {
		w.status = status
		w.complete()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) complete() {
	h := w.Header()
	for name, v := range w.defaults {
		if _, ok := h[name]; !ok {
			h[name] = v
		}
	}
	for name, v := range w.fixed {
		// An application may leave one out, as it may leave out the Date: answers
		// that must tell nothing apart are the same to the byte.
		if set, ok := h[name]; !ok || set != nil {
			h[name] = v
		}
	}
}

func (w *response) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom keeps the server's fast path for files.
func (w *response) ReadFrom(r io.Reader) (int64, error) {
	w.begin()
	n, err := io.Copy(w.ResponseWriter, r)
	w.bytes += n
	return n, err
}

// Flush and Hijack are for handlers that assert the interfaces themselves.
func (w *response) Flush() {
	w.FlushError() //nolint:errcheck // http.Flusher has no way to tell
}

// FlushError is what [http.ResponseController] prefers.
func (w *response) FlushError() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.hijacked = true
		if w.status == 0 {
			w.status = http.StatusSwitchingProtocols // what else it is for
		}
	}
	return c, rw, err
}

// begin sends the header that a handler did not send itself.
func (w *response) begin() {
	if w.status == 0 && !w.hijacked {
		w.WriteHeader(http.StatusOK)
	}
}

// fail answers with a line of text.
func fail(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n") //nolint:errcheck // the client is gone
}

// notAllowed answers a request whose method the path does not have.
func notAllowed(w http.ResponseWriter, allow string) {
	w.Header().Set("Allow", allow)
	fail(w, http.StatusMethodNotAllowed, "method not allowed")
}
