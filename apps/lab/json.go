package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// writeJSON answers with v. What an object holds changes with every event, so
// nothing of it is kept by caches.
func writeJSON(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(v) //nolint:errcheck // the client is gone
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, struct {
		Error string `json:"error"`
	}{text})
}

// A listWriter writes {"name": ..., key: [...]} item by item.
type listWriter struct {
	w   http.ResponseWriter
	sep string
	err error
}

func newListWriter(w http.ResponseWriter, name, key string) *listWriter {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	l := &listWriter{w: w}
	head, _ := json.Marshal(name) // a string always can be
	_, l.err = fmt.Fprintf(w, `{"name":%s,%q:[`, head, key)
	return l
}

func (l *listWriter) add(item any) {
	if l.err != nil {
		return // the client is gone
	}
	b, err := json.Marshal(item)
	if err != nil {
		panic(fmt.Errorf("encode: %w", err))
	}
	_, l.err = fmt.Fprintf(l.w, "%s%s", l.sep, b)
	l.sep = ","
}

func (l *listWriter) end() {
	if l.err == nil {
		fmt.Fprintln(l.w, "]}") //nolint:errcheck // the client is gone
	}
}
