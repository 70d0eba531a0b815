package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
)

// An Outgoing is a message to be sent.
type Outgoing struct {
	ID    string
	Queue string
	// Body is JSON text without white space, at most [MaxBody] bytes.
	Body []byte
	// DelayMs is the time from its commit until it is due, in milliseconds.
	DelayMs int64
}

// Encode makes messages of bodies: a json.RawMessage stays as it is except for
// white space, anything else is marshalled. It fails with
// [durable.ErrTooLarge] and [durable.ErrInvalid].
func Encode(queue string, bodies []any, opts durable.SendOptions) ([]Outgoing, error) {
	if err := CheckName(queue); err != nil {
		return nil, err
	}
	if opts.Delay < 0 || opts.Delay > MaxDelay {
		return nil, fmt.Errorf("send to queue %s: a delay of %s: %w: 0 to %s", queue, opts.Delay, durable.ErrInvalid, MaxDelay)
	}
	out := make([]Outgoing, len(bodies))
	for i, body := range bodies {
		text, err := encodeBody(body)
		if err != nil {
			return nil, fmt.Errorf("send to queue %s: message %d of %d: %w", queue, i+1, len(bodies), err)
		}
		id, err := uuid.NewV7() // in the order of sending
		if err != nil {
			return nil, fmt.Errorf("send to queue %s: %w", queue, err)
		}
		out[i] = Outgoing{ID: id.String(), Queue: queue, Body: text, DelayMs: opts.Delay.Milliseconds()}
	}
	return out, nil
}

func encodeBody(body any) ([]byte, error) {
	var b bytes.Buffer
	if raw, ok := body.(json.RawMessage); ok {
		if err := json.Compact(&b, raw); err != nil {
			return nil, fmt.Errorf("%w: the body is not JSON: %w", durable.ErrInvalid, err)
		}
	} else {
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(body); err != nil {
			return nil, fmt.Errorf("%w: the body cannot be written as JSON: %w", durable.ErrInvalid, err)
		}
	}
	text := bytes.TrimRight(b.Bytes(), "\n")
	switch {
	case len(text) > MaxBody:
		return nil, fmt.Errorf("a body of %d bytes: %w: at most %d", len(text), durable.ErrTooLarge, MaxBody)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%w: the body is not UTF-8", durable.ErrInvalid)
	case depth(text) > maxDepth:
		return nil, fmt.Errorf("%w: the body nests more than %d levels", durable.ErrInvalid, maxDepth)
	}
	return text, nil
}

// depth is how deeply JSON text nests.
func depth(text []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			level++
			deepest = max(deepest, level)
		case c == ']' || c == '}':
			level--
		}
	}
	return deepest
}
