package queue

import (
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// scanned bounds the due messages that one claim looks at. It looks at more
// than it takes only when some of them cannot be taken.
const scanned = 1000

// A claim takes messages of one queue. Its id is chosen before it is sent, so
// that what it took can be told when its answer is lost.
type claim struct {
	queue       string
	id, replica string
	// givenUp are claims of this replica whose answers were lost: messages that
	// they took have not been delivered.
	givenUp     []string
	visibility  time.Duration
	maxAttempts int
	retention   time.Duration
	// limit bounds the messages, and bytes their sum. One always passes.
	limit, bytes int
	// suspect admits one message that has brought down its process before.
	suspect bool
}

// low is the least key of a message that is due.
func low(queue string) []byte { return append(dueKey(queue), 0x03) }

// suspectAt is the number of crashes from which on a message is delivered by
// itself, one at a time: a message that kills its process must not use up the
// attempts of those that are delivered beside it. The last attempt always is.
func (c claim) suspectAt() int { return max(1, min(2, c.maxAttempts-1)) }

// bury is the statement that moves due messages to the dead letters that no
// consumer may get: those whose last attempt crashed, and what is no message.
func (c claim) bury() libsql.Statement {
	n := len(dueKey(c.queue))
	overdrawn := crashed("?4") + ` AND ` + attempts + ` + 1 >= ?5`
	sql := `UPDATE OR IGNORE kv SET
	k = CAST(?3 || ` + kv.KeyNum(kv.Now) + ` || ` + rest(n) + ` AS BLOB), expires_at = ` + kv.Now + ` + ?6,
	v = CASE WHEN ` + sound + ` THEN json_remove(json_set(v, '$.attempts', ` + attempts + ` + ` + crashed("?4") + `, '$.error',
		CASE WHEN ` + size + ` > ?7 THEN 'too large to be delivered' ELSE 'the replica that delivered it died, or lost its claim' END), '$.claim', '$.claimed_by')
	ELSE json_object('body', CAST(v AS TEXT), 'attempts', 0, 'error', 'not a message: the entry was no JSON object') END
	WHERE k IN (SELECT k FROM (SELECT k, v FROM kv WHERE ` + due + ` ORDER BY k LIMIT ?8)
		WHERE NOT ` + sound + ` OR ` + size + ` > ?7 OR ` + overdrawn + `)
	AND ` + unpaused("?9") + ` RETURNING k, json_extract(v, '$.attempts'), json_extract(v, '$.error')`
	return libsql.S(sql, dueKey(c.queue), low(c.queue), deadKey(c.queue), encoded(append([]string{}, c.givenUp...)), c.maxAttempts, c.retention.Milliseconds(), maxRow, c.limit, pauseKey(c.queue))
}

// take is the statement that claims. It returns the messages for [readHeld].
func (c claim) take() libsql.Statement {
	n := len(dueKey(c.queue))
	isSuspect := crashes + ` + ` + crashed("?4") + ` >= ?7`
	set := `v, '$.claim', ?5, '$.claimed_by', ?6, '$.attempts', ` + attempts
	sql := `UPDATE OR IGNORE kv SET
	k = CAST(` + at(kv.Now+` + ?3`) + ` || ` + rest(n) + ` AS BLOB),
	v = CASE WHEN ` + crashed("?4") + ` THEN json_set(` + set + ` + 1, '$.crashes', ` + crashes + ` + 1) ELSE json_set(` + set + `) END
	WHERE k IN (SELECT k FROM (
		SELECT k, suspect, sum(n) OVER w AS s, row_number() OVER w AS r, first_value(suspect) OVER w AS alone FROM (
			SELECT k, ` + size + ` AS n, ` + isSuspect + ` AS suspect FROM (SELECT k, v FROM kv WHERE ` + due + ` ORDER BY k LIMIT ?8)
			WHERE ` + sound + ` AND ` + size + ` <= ?9 AND NOT (` + crashed("?4") + ` AND ` + attempts + ` + 1 >= ?10) AND (?11 OR NOT (` + isSuspect + `))
			LIMIT ?12)
		WINDOW w AS (ORDER BY k ROWS UNBOUNDED PRECEDING))
		WHERE r = 1 OR (s <= ?13 AND NOT alone AND NOT suspect))
	AND ` + unpaused("?14") + ` RETURNING k, v, ` + kv.Now
	return libsql.S(sql, dueKey(c.queue), low(c.queue), c.visibility.Milliseconds(), encoded(append([]string{}, c.givenUp...)), c.id, c.replica, c.suspectAt(),
		scanned, maxRow, c.maxAttempts, c.suspect, c.limit, c.bytes, pauseKey(c.queue))
}

// locate is the statement that finds what a claim holds, for [readHeld].
func locate(queue, id string, visibility time.Duration) libsql.Statement {
	return libsql.S(`SELECT k, v, `+kv.Now+` FROM kv WHERE k > CAST(`+at(kv.Now+` - 2 * ?2`)+` AS BLOB) AND k <= CAST(`+at(kv.Now+` + ?2 + 1`)+` AS BLOB)
	AND `+claimOf+` = ?3`, dueKey(queue), visibility.Milliseconds(), id)
}
