package alarm

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
)

// The statements below change the slot of one object and its entry in the due
// index together. They belong to a plan that holds the object's lease. While one
// plan runs a changed slot keeps its former time as "was".

// was is how a statement tells the others of its plan which entry of the due
// index the slot had; 0 names none.
const was = `json_extract(v, '$.was')`

// AddSet adds to a plan that the alarm is set to a time, which [Check] accepts.
func AddSet(p *kv.Plan, class, id string, t time.Time) {
	ms := t.UnixMilli()
	s := Slot{EpochMs: max(ms, minMs)}
	if s.EpochMs != ms {
		s.Due = &ms
	}
	text, _ := json.Marshal(s) // it always can be
	addSlot(p, class, id, `json_set(?, '$.was', 0)`, string(text))
}

// AddSetIn adds to a plan that the alarm is set to d from now.
func AddSetIn(p *kv.Plan, class, id string, d time.Duration) {
	addSlot(p, class, id, `json_object('epochMs', min(`+kv.Now+` + ?, 4398046511103), 'retryCount', 0, 'was', 0)`, max(0, d.Milliseconds()))
}

// AddAgain adds to a plan that an alarm is due now, as if it had not been run
// yet. asked is the time that it was asked for.
func AddAgain(p *kv.Plan, class, id string, asked int64) {
	addSlot(p, class, id, `json_object('epochMs', `+kv.Now+`, 'retryCount', 0, 'due', ?, 'was', 0)`, asked)
}

func addSlot(p *kv.Plan, class, id, value string, arg any) {
	p.Stamped()
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, `+value+`, seq, NULL FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(k) DO UPDATE SET v = json_set(excluded.v, '$.was', coalesce(`+epoch(`kv.v`)+`, 0)), ver = excluded.ver, expires_at = NULL`, SlotKey(class, id), arg)
	addIndex(p, class, id)
}

// addIndex moves the entry of the due index behind a slot that has a "was".
func addIndex(p *kv.Plan, class, id string) {
	slot, prefix, suffix := SlotKey(class, id), tuple.MustEncode(DuePrefix, class), tuple.MustEncode(id)
	p.Add(`DELETE FROM kv WHERE k = (SELECT CAST(? || `+keyOf(was)+` || ? AS BLOB) FROM kv WHERE k = ?) AND `+kv.OK, prefix, suffix, slot)
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT CAST(? || `+keyOf(`json_extract(v, '$.epochMs')`)+` || ? AS BLOB), json_remove(v, '$.was'), ver, NULL
	FROM kv WHERE k = ? AND `+was+` IS NOT NULL AND `+kv.OK+` ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = NULL`, prefix, suffix, slot)
	p.Add(`UPDATE kv SET v = json_remove(v, '$.was') WHERE k = ? AND `+was+` IS NOT NULL AND `+kv.OK, slot)
}

// AddClear adds to a plan that there is no alarm.
func AddClear(p *kv.Plan, class, id string) {
	slot := SlotKey(class, id)
	p.Add(`DELETE FROM kv WHERE k = (SELECT CAST(? || `+keyOf(epoch(`v`))+` || ? AS BLOB) FROM kv WHERE k = ?) AND `+kv.OK,
		tuple.MustEncode(DuePrefix, class), tuple.MustEncode(id), slot)
	p.Add(`DELETE FROM kv WHERE k = ? AND `+kv.OK, slot)
}

// leaseEnd is the end of the lease whose key is the argument.
const leaseEnd = `(SELECT expires_at FROM kv WHERE k = ?)`

// AddClaim adds to a plan that a due alarm is claimed by the holder of the
// lease. A claim that another holder left behind counts as a crash, unless the
// holder is among givenUp: those were never run, and are claimed before they are
// due. A slot that is not due, or claimed already, stays as it is.
func AddClaim(p *kv.Plan, h lease.Held, givenUp []string) {
	ids, _ := json.Marshal(append([]string{}, givenUp...))
	key := lease.Key(h.Class, h.ID)
	p.Stamped()
	p.Add(`UPDATE kv SET v = json_object('epochMs', `+leaseEnd+`, 'retryCount', coalesce(json_extract(v, '$.retryCount'), 0) + `+crashed+`,
		'due', coalesce(json_extract(v, '$.due'), json_extract(v, '$.epochMs')), 'claim', ?, 'crashed', `+crashed+`, 'was', json_extract(v, '$.epochMs')),
		ver = (SELECT seq FROM kv_meta WHERE id = 0)
	WHERE k = ? AND (json_extract(v, '$.epochMs') <= `+kv.Now+` OR json_extract(v, '$.claim') IN (SELECT value FROM json_each(?))) AND `+kv.OK,
		key, string(ids), h.Holder, string(ids), SlotKey(h.Class, h.ID), string(ids))
	addIndex(p, h.Class, h.ID)
}

// crashed is 1 for a slot whose claim is not among the ids of the argument.
const crashed = `(json_extract(v, '$.claim') IS NOT NULL AND json_extract(v, '$.claim') NOT IN (SELECT value FROM json_each(?)))`

// AddFollow adds to a plan that a claimed alarm follows its lease, which the
// plan has extended.
func AddFollow(p *kv.Plan, h lease.Held) {
	p.Add(`UPDATE kv SET v = json_set(v, '$.was', json_extract(v, '$.epochMs'), '$.epochMs', `+leaseEnd+`)
	WHERE k = ? AND json_extract(v, '$.claim') = ? AND `+kv.OK, lease.Key(h.Class, h.ID), SlotKey(h.Class, h.ID), h.Holder)
	addIndex(p, h.Class, h.ID)
}

// AddRetry adds to a plan that an alarm claimed by the holder, whose run failed,
// is due again in a while.
func AddRetry(p *kv.Plan, h lease.Held, in time.Duration) {
	p.Stamped()
	p.Add(`UPDATE kv SET v = json_object('epochMs', `+kv.Now+` + ?, 'retryCount', json_extract(v, '$.retryCount') + 1,
		'due', json_extract(v, '$.due'), 'was', json_extract(v, '$.epochMs')), ver = (SELECT seq FROM kv_meta WHERE id = 0)
	WHERE k = ? AND json_extract(v, '$.claim') = ? AND `+kv.OK, in.Milliseconds(), SlotKey(h.Class, h.ID), h.Holder)
	addIndex(p, h.Class, h.ID)
}

// AddHandBack adds to a plan that an alarm claimed by the holder, which has not
// been run, is due again in a while, uncounted.
func AddHandBack(p *kv.Plan, h lease.Held, in time.Duration) {
	p.Stamped()
	p.Add(`UPDATE kv SET v = json_object('epochMs', `+kv.Now+` + ?, 'retryCount', json_extract(v, '$.retryCount'),
		'due', json_extract(v, '$.due'), 'was', json_extract(v, '$.epochMs')), ver = (SELECT seq FROM kv_meta WHERE id = 0)
	WHERE k = ? AND json_extract(v, '$.claim') = ? AND `+kv.OK, in.Milliseconds(), SlotKey(h.Class, h.ID), h.Holder)
	addIndex(p, h.Class, h.ID)
}

// maxError bounds a stored error, in bytes.
const maxError = 1 << 10

// AddDead adds to a plan that an alarm claimed by the holder is given up: it
// goes to the dead letters.
func AddDead(p *kv.Plan, h lease.Held, errText string) {
	slot := SlotKey(h.Class, h.ID)
	const claimed = ` FROM kv WHERE k = ? AND json_extract(v, '$.claim') = ? AND ` + kv.OK
	p.Stamped()
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, json_object('due', json_extract(v, '$.due'), 'retryCount', json_extract(v, '$.retryCount'),
		'error', ?, 'died_at', `+kv.Now+`), (SELECT seq FROM kv_meta WHERE id = 0), `+kv.Now+` + ?`+claimed+`
	ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`,
		DeadKey(h.Class, h.ID), cut(errText), deadTTL.Milliseconds(), slot, h.Holder)
	p.Add(`DELETE FROM kv WHERE k = (SELECT CAST(? || `+keyOf(`json_extract(v, '$.epochMs')`)+` || ? AS BLOB)`+claimed+`)`,
		tuple.MustEncode(DuePrefix, h.Class), tuple.MustEncode(h.ID), slot, h.Holder)
	p.Add(`DELETE FROM kv WHERE k = ? AND json_extract(v, '$.claim') = ? AND `+kv.OK, slot, h.Holder)
}

func cut(text string) string {
	if len(text) > maxError {
		text = text[:maxError]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// AddRun adds a run to an object's history, which keeps the last ones.
// startedMs is when it began, by the primary's clock.
func AddRun(p *kv.Plan, class, id string, startedMs int64, r Run) {
	r.Error = cut(r.Error)
	text, _ := json.Marshal(r) // it always can be
	p.Stamped()
	prefix := tuple.MustEncode(RunPrefix, class, id)
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, json_set(?, '$.finished_at', `+kv.Now+`), seq, `+kv.Now+` + ? FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`,
		tuple.MustEncode(RunPrefix, class, id, tuple.Millis(startedMs)), string(text), runTTL.Milliseconds())
	p.Add(`DELETE FROM kv WHERE k IN (SELECT k FROM kv WHERE k >= ? AND k < ? ORDER BY k DESC LIMIT -1 OFFSET ?) AND `+kv.OK,
		prefix, tuple.RangeEnd(prefix), maxRuns)
}
