package queue

import (
	"encoding/hex"
	"encoding/json"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// Due times that a key of a message can hold, in epoch milliseconds: from 2004
// to 2039.
const (
	minDue = 1 << 40
	maxDue = 1<<41 - 1
)

// An Imported is a message from elsewhere, which keeps its own time.
type Imported struct {
	Queue, ID string
	Body      []byte
	// DueMs is when it is due, in epoch milliseconds.
	DueMs int64
}

// Import makes a message of JSON text that was queued elsewhere. It fails with
// [durable.ErrTooLarge] and [durable.ErrInvalid].
func Import(queue, id string, body []byte, dueMs int64) (Imported, error) {
	if err := CheckName(queue); err != nil {
		return Imported{}, err
	}
	text, err := encodeBody(json.RawMessage(body))
	return Imported{Queue: queue, ID: id, Body: text, DueMs: min(max(dueMs, minDue), maxDue)}, err
}

// Key is the encoded key under which the message is stored at first.
func (m Imported) Key() []byte {
	return tuple.MustEncode(PrefixDue, m.Queue, tuple.Millis(m.DueMs), m.ID)
}

// imports stores messages given as a JSON list of [key, body].
const imports = `INSERT INTO kv(k, v, ver, expires_at) SELECT unhex(m.value->>0),
	'{"body":' || (m.value->>1) || ',"attempts":0,"sent_at":' || ` + kv.Now + ` || '}', seq, NULL
	FROM json_each(?) m, kv_meta WHERE kv_meta.id = 0 AND kv_meta.ok = 1
	ON CONFLICT(k) DO NOTHING`

// AddImport adds to a plan that messages are there, due at their own times. At
// most a few hundred KiB should be given at once.
func AddImport(p *kv.Plan, msgs []Imported) {
	if len(msgs) == 0 {
		return
	}
	list := make([][2]string, len(msgs))
	for i, m := range msgs {
		list[i] = [2]string{hex.EncodeToString(m.Key()), string(m.Body)}
	}
	p.Stamped()
	p.Add(imports, encoded(list))
}

// A Kept is a message as it is stored, for those who take the queues elsewhere.
type Kept struct {
	Queue, ID string
	Body      json.RawMessage
	Attempts  int
	// AtMs is when it is due, or when it died, in epoch milliseconds.
	AtMs int64
	Dead bool
}

// ReadKept reads an entry below [PrefixDue] or [PrefixDead]; ok is false for
// another.
func ReadKept(e kv.Entry) (m Kept, ok bool, err error) {
	if len(e.Key) != 4 || e.Key[0] != PrefixDue && e.Key[0] != PrefixDead {
		return m, false, nil
	}
	var at float64
	m.Queue, ok = e.Key[1].(string)
	if ok {
		at, ok = e.Key[2].(float64)
	}
	if ok {
		m.ID, ok = e.Key[3].(string)
	}
	if !ok {
		return m, false, nil
	}
	s, err := parse(string(e.Value))
	if err == nil && !json.Valid(s.Body) {
		err = durable.ErrInvalid
	}
	m.Body, m.Attempts, m.AtMs, m.Dead = s.Body, s.Attempts, int64(at), e.Key[0] == PrefixDead
	return m, true, err
}
