package queue

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
)

// A settlement ends what a claim holds. Every part of it is guarded by the
// claim, so that it may be repeated.
type settlement struct {
	queue, claim string
	// retention is how long dead letters are kept.
	retention time.Duration
	// acks are the keys of the messages that are done.
	acks [][]byte
	// again are due again, and dead are dead letters.
	again, dead []move
}

// A move is where a message goes.
type move struct {
	key   []byte
	delay time.Duration
	// counted adds one to the attempts, and notes err.
	counted bool
	err     string
}

// empty reports whether there is nothing to do.
func (s settlement) empty() bool { return len(s.acks)+len(s.again)+len(s.dead) == 0 }

// theirs joins m, a list of moves in the parameter ?2, with what the claim ?3
// still holds.
const theirs = ` FROM json_each(?2) AS m WHERE kv.k = unhex(m.value->>0) AND ` + claimOf + ` = ?3 AND ` + kv.OK

// freed is the value of a message without its claim.
const freed = `CASE WHEN m.value->>2 THEN json_remove(json_set(v, '$.attempts', ` + attempts + ` + 1, '$.error', m.value->>3), '$.claim', '$.claimed_by')
	ELSE json_remove(v, '$.claim', '$.claimed_by') END`

// add adds the settlement to a plan and returns the indexes of results that
// name what was settled by the ends of their keys.
func (s settlement) add(p *kv.Plan) (results []int) {
	due, dead := len(dueKey(s.queue)), len(deadKey(s.queue))
	if len(s.acks) > 0 {
		keys := make([]string, len(s.acks))
		for i, k := range s.acks {
			keys[i] = hex.EncodeToString(k)
		}
		results = append(results, p.Add(`DELETE FROM kv WHERE k IN (SELECT unhex(value) FROM json_each(?1)) AND `+claimOf+` = ?2 AND `+kv.OK+
			` RETURNING `+rest(due), encoded(keys), s.claim))
	}
	if len(s.again) > 0 {
		results = append(results, p.Add(`UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now+` + (m.value->>1)`)+` || `+rest(due)+` AS BLOB), v = `+freed+
			theirs+` RETURNING `+rest(due), dueKey(s.queue), moves(s.again), s.claim))
	}
	if len(s.dead) > 0 {
		results = append(results, p.Add(`UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now)+` || `+rest(due)+` AS BLOB), v = `+freed+`, expires_at = `+kv.Now+` + ?4`+
			theirs+` RETURNING `+rest(dead), deadKey(s.queue), moves(s.dead), s.claim, s.retention.Milliseconds()))
	}
	return results
}

// addRenew adds the renewal of a claim to a plan: what it holds of the keys
// moves to visibility from now. The result is for [readHeld], with values that
// need not be read.
func addRenew(p *kv.Plan, queue, claim string, keys [][]byte, visibility time.Duration) (result int) {
	list := make([]move, len(keys))
	for i, k := range keys {
		list[i] = move{key: k, delay: visibility}
	}
	return p.Add(`UPDATE OR IGNORE kv SET k = CAST(`+at(kv.Now+` + (m.value->>1)`)+` || `+rest(len(dueKey(queue)))+` AS BLOB)`+theirs+
		` RETURNING k, '{}', `+kv.Now, dueKey(queue), moves(list), claim)
}

func moves(list []move) string {
	out := make([][4]any, len(list))
	for i, m := range list {
		out[i] = [4]any{hex.EncodeToString(m.key), m.delay.Milliseconds(), m.counted, m.err}
	}
	return encoded(out)
}

// encoded is v as JSON, which cannot fail for what this package makes.
func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("queue: " + err.Error())
	}
	return string(text)
}
