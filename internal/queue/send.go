package queue

import (
	"encoding/hex"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// sendBytes bounds the bodies of one statement, in bytes.
const sendBytes = 512 << 10

// insert stores messages given as a JSON list of [prefix, delay, rest of the
// key, body]. A body travels as a string, so that nothing reads and prints it
// again.
var insert = `INSERT INTO kv(k, v, ver, expires_at) SELECT
	CAST(unhex(m.value->>0) || ` + kv.KeyNum(kv.Now+` + (m.value->>1)`) + ` || unhex(m.value->>2) AS BLOB),
	'{"body":' || (m.value->>3) || ',"attempts":0,"sent_at":' || ` + kv.Now + ` || '}', seq, NULL
	FROM json_each(?) m, kv_meta WHERE kv_meta.id = 0 AND kv_meta.ok = 1
	ON CONFLICT(k) DO NOTHING`

// AddSend adds the sending of messages to a plan: they become visible when the
// plan is applied, and due their delay after it. Any number of messages, made
// by [Encode], is a few statements.
func AddSend(p *kv.Plan, msgs []Outgoing) {
	if len(msgs) == 0 {
		return
	}
	p.Stamped()
	for len(msgs) > 0 {
		n, size := 0, 0
		for n < len(msgs) && (n == 0 || size+len(msgs[n].Body) <= sendBytes) {
			size += len(msgs[n].Body)
			n++
		}
		p.Add(insert, sendList(msgs[:n]))
		msgs = msgs[n:]
	}
}

func sendList(msgs []Outgoing) string {
	list := make([][4]any, len(msgs))
	for i, m := range msgs {
		list[i] = [4]any{
			hex.EncodeToString(dueKey(m.Queue)), m.DelayMs,
			hex.EncodeToString(tuple.MustEncode(m.ID)), string(m.Body),
		}
	}
	return encoded(list)
}
