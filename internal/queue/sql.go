package queue

import (
	"strconv"

	"github.com/davidwkeith/dwk/internal/kv"
)

// What the column v of a message says. An entry that an operator or a program
// of somebody else has put there may be anything: nothing may fail on it.
const (
	sound    = `(CASE WHEN json_valid(v) THEN json_type(v) ELSE '' END = 'object')`
	claimOf  = `(CASE WHEN json_valid(v) THEN json_extract(v, '$.claim') END)`
	attempts = `CAST(coalesce(CASE WHEN json_valid(v) THEN json_extract(v, '$.attempts') END, 0) AS INTEGER)`
	crashes  = `CAST(coalesce(CASE WHEN json_valid(v) THEN json_extract(v, '$.crashes') END, 0) AS INTEGER)`
	size     = `length(CAST(v AS BLOB))`
)

// Parts of statements whose parameters are ?1, the encoded prefix of keys, and,
// in due, ?2, the least of them with a number.

// at is the key, up to the message's id, of a message that is due at expr.
func at(expr string) string { return `?1 || ` + kv.KeyNum(expr) }

// rest is the end of a key, which names the message. A prefix is n bytes long.
func rest(n int) string { return `substr(k, ` + strconv.Itoa(n+numberLen+1) + `)` }

// due tests whether a message is due.
var due = `k >= ?2 AND k < CAST(` + at(kv.Now+` + 1`) + ` AS BLOB)`

// crashed tests for a claim that was left by a replica that died or lost it;
// given is the parameter with the claims that were given up.
func crashed(given string) string {
	return `(` + claimOf + ` IS NOT NULL AND ` + claimOf + ` NOT IN (SELECT value FROM json_each(` + given + `)))`
}

// unpaused tests that the queue whose pause key is the parameter is not paused.
func unpaused(key string) string {
	return `NOT EXISTS (SELECT 1 FROM kv AS pause WHERE pause.k = ` + key + ` AND (pause.expires_at IS NULL OR pause.expires_at > ` + kv.Now + `))`
}
