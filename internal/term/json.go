package term

import (
	"bytes"
	"encoding/json"
	"io"
)

// WriteJSON writes one value, indented.
func (t *Term) WriteJSON(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err = t.Out.Write(out.Bytes())
	return err
}

// WriteLine writes one value as a line of a stream.
func (t *Term) WriteLine(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	_, err = t.Out.Write(append(b, '\n'))
	return err
}

// encode returns one line of JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// An Array writes the elements of a list one by one, each on a line of its
// own, so that a long list needs no memory.
type Array struct {
	w    io.Writer
	some bool
	err  error
}

// Array begins a list on the output. It must be ended with Close.
func (t *Term) Array() *Array { return &Array{w: t.Out} }

// Add writes one element.
func (a *Array) Add(v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	sep := "[\n  "
	if a.some {
		sep = ",\n  "
	}
	a.some = true
	a.write(append([]byte(sep), b...))
	return a.err
}

// Close writes the end of the list.
func (a *Array) Close() error {
	if a.some {
		a.write([]byte("\n]\n"))
	} else {
		a.write([]byte("[]\n"))
	}
	return a.err
}

func (a *Array) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}
