package queue

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
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

// stored is what an entry holds. An older host wrote Body and Attempts only.
type stored struct {
	Body      json.RawMessage `json:"body"`
	Attempts  int             `json:"attempts"`
	Crashes   int             `json:"crashes"`
	SentAt    int64           `json:"sent_at"`
	Claim     string          `json:"claim"`
	ClaimedBy string          `json:"claimed_by"`
	Error     string          `json:"error"`
}

// parse reads an entry's value. A field of another type than ours is left out.
func parse(text string) (s stored, err error) {
	err = json.Unmarshal([]byte(text), &s)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
		err = nil
	}
	if s.Body == nil {
		s.Body = json.RawMessage("null")
	}
	return s, err
}

// split returns the time and the message's id in a key whose prefix is n bytes
// long. What is not an id of ours is shown in hexadecimal.
func split(key []byte, n int) (ms int64, id string) {
	end := min(n+numberLen, len(key))
	if k, err := tuple.Decode(key[n:end]); err == nil && len(k) == 1 {
		if f, ok := k[0].(float64); ok {
			ms = int64(f)
		}
	}
	if k, err := tuple.Decode(key[end:]); err == nil && len(k) == 1 {
		if id, ok := k[0].(string); ok {
			return ms, id
		}
	}
	return ms, hex.EncodeToString(key[end:])
}

// held is a message that a claim holds.
type held struct {
	// key is where it is stored.
	key []byte
	id  string
	stored
	// left is how long the claim lasted when it was seen.
	left time.Duration
}

// name is the end of a key, which stays when a message moves.
func name(queue string, key []byte) string {
	return string(key[min(len(dueKey(queue))+numberLen, len(key)):])
}

// readHeld reads the result of [claim.take] or [locate], in the order of the
// messages' ids. It leaves out what cannot be read and returns an error too.
func readHeld(queue string, r libsql.Result) (out []held, err error) {
	for _, row := range r.Rows {
		var h held
		h.key, _ = row[0].([]byte)
		text, _ := row[1].(string)
		now, _ := row[2].(int64)
		ms, id := split(h.key, len(dueKey(queue)))
		h.id, h.left = id, time.Duration(ms-now)*time.Millisecond
		var e error
		if h.stored, e = parse(text); e != nil {
			err = fmt.Errorf("message %s of queue %s: %w", id, queue, e)
			continue
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b held) int { return strings.Compare(name(queue, a.key), name(queue, b.key)) })
	return out, err
}
