package alarm

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// LookAt is how many due alarms of a class one take looks at.
const LookAt = 1000

// A Take takes the leases of objects of one class whose alarm is due and that
// nobody holds, and claims their alarms. Alarms of objects without a log, which
// an older host left, stay where they are.
type Take struct {
	Class, Replica string
	// Holders are holder ids chosen before sending, as many as alarms may be
	// taken.
	Holders []string
	// Lost are the holder ids of earlier takes whose answer was lost. What they
	// have claimed is returned too.
	Lost []string
	// GivenUp are holder ids whose claims were never run: they do not count as a
	// crash.
	GivenUp []string
	TTL     time.Duration
	// DeadlineMs is when, by the primary's clock, the take takes nothing any
	// more, in epoch milliseconds.
	DeadlineMs int64
	// Behind is the key behind which to look, nil to begin with the oldest.
	Behind []byte
}

// A Taken is an object whose lease was taken for its alarm.
type Taken struct {
	ID    string
	Lease lease.Info
	Slot  Slot
	Head  objlog.Head
}

// Looked is what a take has seen.
type Looked struct {
	// Due is the number of due alarms, held ones too, LookAt at most.
	Due int
	// OldestMs is when the oldest of them was due, or 0, and NowMs the primary's
	// clock.
	OldestMs, NowMs int64
	// Last is the key of the last one.
	Last []byte
}

// tail is the encoded id at the end of a key of the due index d.
const tail = `substr(d.k, length(:prefix) + 10)`

// due are the entries of the due index that a take looks at.
var due = `(SELECT k, v FROM kv WHERE k > :behind AND k < CAST(:prefix || ` + kv.KeyNum(kv.Now+` + 1`) + ` AS BLOB) ORDER BY k LIMIT 1000)`

// named tells that the slot s names the entry d of the due index.
var named = `s.k = CAST(:slots || ` + tail + ` AS BLOB) AND ` + keyOf(epoch(`s.v`)) + ` = substr(d.k, length(:prefix) + 1, 9)`

// free are those that can be taken: named by a slot, of an object that exists,
// without a live lease.
var free = due + ` d WHERE EXISTS (SELECT 1 FROM kv s WHERE ` + named + `)
	AND NOT EXISTS (SELECT 1 FROM kv l WHERE l.k = CAST(:leases || ` + tail + ` AS BLOB) AND (l.expires_at IS NULL OR l.expires_at > ` + kv.Now + `))
	AND EXISTS (SELECT 1 FROM obj_head h WHERE h.class = :class AND h.id = CAST(substr(` + tail + `, 2, length(` + tail + `) - 2) AS TEXT) AND h.deleted_at IS NULL)`

// claimed tells that the entry d of the due index is claimed by one of some
// holders. Its time is the end of a live lease.
var claimed = `d.k >= CAST(:prefix || ` + kv.KeyNum(kv.Now) + ` AS BLOB) AND d.k < CAST(:prefix || ` + kv.KeyNum(kv.Now+` + :ttl + 1`) + ` AS BLOB)
	AND CASE WHEN json_valid(d.v) THEN json_extract(d.v, '$.claim') END IN (SELECT value FROM json_each(:ids))`

// takenOver is 1 for a slot s whose claim another holder left behind.
const takenOver = `(json_extract(s.v, '$.claim') IS NOT NULL AND json_extract(s.v, '$.claim') NOT IN (SELECT value FROM json_each(:givenup)))`

// taking guards what a take changes: kv_meta.ok is 2 from where it has found
// something to its end.
const taking = `(SELECT ok FROM kv_meta WHERE id = 0) = 2`

// The statements of a take. One that finds nothing writes nothing.
var (
	lookSQL  = `SELECT count(*), min(k), max(k), ` + kv.Now + ` FROM ` + due
	beginSQL = `UPDATE kv_meta SET ok = 2, seq = seq + 1 WHERE id = 0 AND json_array_length(:holders) > 0 AND ` + kv.Now + ` <= :deadline AND EXISTS (SELECT 1 FROM ` + free + `)`
	leaseSQL = `INSERT INTO kv(k, v, ver, expires_at)
	SELECT c.k, json_object('holder', h.value, 'replica', :replica, 'event', 'alarm', 'acquired_at', ` + kv.Now + `), m.seq, ` + kv.Now + ` + :ttl
	FROM (SELECT CAST(:leases || ` + tail + ` AS BLOB) AS k, row_number() OVER (ORDER BY d.k) AS n FROM ` + free + `) c
	JOIN json_each(:holders) h ON h.key = c.n - 1 JOIN kv_meta m ON m.id = 0 AND m.ok = 2 WHERE 1
	ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`
	moveSQL = `UPDATE OR REPLACE kv SET k = CAST(:prefix || ` + kv.KeyNum(`c.ends`) + ` || c.tail AS BLOB), v = c.v, ver = c.seq
	FROM (SELECT d.k, ` + tail + ` AS tail, l.expires_at AS ends, m.seq, json_object('epochMs', l.expires_at,
			'retryCount', coalesce(json_extract(s.v, '$.retryCount'), 0) + ` + takenOver + `,
			'due', coalesce(json_extract(s.v, '$.due'), json_extract(s.v, '$.epochMs')), 'claim', json_extract(l.v, '$.holder'), 'crashed', ` + takenOver + `) AS v
		FROM ` + due + ` d JOIN kv s ON ` + named + ` JOIN kv l ON l.k = CAST(:leases || ` + tail + ` AS BLOB) JOIN kv_meta m ON m.id = 0 AND m.ok = 2
		WHERE json_extract(l.v, '$.holder') IN (SELECT value FROM json_each(:holders))) c
	WHERE kv.k = c.k`
	slotSQL = `UPDATE kv SET v = c.v, ver = c.ver
	FROM (SELECT CAST(:slots || ` + tail + ` AS BLOB) AS k, d.v, d.ver FROM kv_meta m JOIN kv d WHERE m.id = 0 AND m.ok = 2 AND ` + claimed + `) c
	WHERE kv.k = c.k`
	takenSQL = `SELECT CAST(substr(` + tail + `, 2, length(` + tail + `) - 2) AS TEXT), d.v, l.v, l.ver, l.expires_at, ` + kv.Now + `, ` + objlog.HeadColumns + `
	FROM (SELECT 1 WHERE ` + taking + ` OR json_array_length(:lost) > 0) CROSS JOIN kv d
	JOIN kv l ON l.k = CAST(:leases || ` + tail + ` AS BLOB) AND l.expires_at > ` + kv.Now + ` AND json_extract(l.v, '$.holder') = json_extract(d.v, '$.claim')
	JOIN obj_head h ON h.class = :class AND h.id = CAST(substr(` + tail + `, 2, length(` + tail + `) - 2) AS TEXT)
	WHERE ` + claimed
	endSQL = `UPDATE kv_meta SET ok = 1 WHERE id = 0 AND ok = 2`
)

// Statements returns the statements of the take, for one write transaction.
func (t Take) Statements() []libsql.Statement {
	prefix := tuple.MustEncode(DuePrefix, t.Class)
	behind := t.Behind
	if behind == nil {
		behind = prefix
	}
	args := map[string]any{
		":prefix": prefix, ":behind": behind, ":slots": tuple.MustEncode(SlotPrefix, t.Class), ":leases": tuple.MustEncode(lease.Prefix, t.Class),
		":class": t.Class, ":replica": t.Replica, ":ttl": t.TTL.Milliseconds(), ":deadline": t.DeadlineMs,
		":holders": list(t.Holders), ":lost": list(t.Lost), ":givenup": list(t.GivenUp), ":ids": list(t.Holders),
	}
	var out []libsql.Statement
	for _, sql := range []string{lookSQL, beginSQL, leaseSQL, moveSQL, slotSQL} {
		out = append(out, kv.Bind(sql, args))
	}
	args[":ids"] = list(slices.Concat(t.Holders, t.Lost))
	return append(out, kv.Bind(takenSQL, args), libsql.S(endSQL))
}

func list(ids []string) string {
	text, _ := json.Marshal(append([]string{}, ids...)) // it always can be
	return string(text)
}

// Read reads the results of Statements.
func (t Take) Read(res []libsql.Result) ([]Taken, Looked, error) {
	row := res[0].Rows[0]
	var l Looked
	n, _ := row[0].(int64)
	l.Due = int(n)
	l.NowMs, _ = row[3].(int64)
	l.Last, _ = row[2].([]byte)
	if first, ok := row[1].([]byte); ok {
		if key, err := tuple.Decode(first); err == nil && len(key) == 4 {
			ms, _ := key[2].(float64)
			l.OldestMs = int64(ms)
		}
	}
	var taken []Taken
	for _, row := range res[5].Rows {
		one := Taken{}
		one.ID, _ = row[0].(string)
		slot, _ := row[1].(string)
		if err := json.Unmarshal([]byte(slot), &one.Slot); err != nil {
			return taken, l, fmt.Errorf("alarm of %s/%s: %w", t.Class, one.ID, err)
		}
		var err error
		if one.Lease, _, err = lease.Read(t.Class, one.ID, libsql.Result{Rows: []libsql.Row{row[2:6]}}); err != nil {
			return taken, l, err
		}
		if one.Head, err = objlog.ReadHead(libsql.Result{Rows: []libsql.Row{row[6:]}}); err != nil {
			return taken, l, fmt.Errorf("%s/%s: %w", t.Class, one.ID, err)
		}
		taken = append(taken, one)
	}
	return taken, l, nil
}
