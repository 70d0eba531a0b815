package cron

import (
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// What a take is for.
type kind int

const (
	takeDue     kind = iota // an occurrence inside its window
	takeRequest             // an occurrence that an operator asked for
	takeRepeat              // one whose run was cut off, once more
	takeClose               // one whose run was cut off for the last time: nothing is run
	takeNew                 // a schedule that was never seen: nothing is run
)

// A take is what a replica proposes for a schedule in one poll. The first of
// its statements decides, with the primary's clock; without its consent the
// others change nothing.
type take struct {
	kind kind
	name string
	// at is the occurrence, and end when its window ends.
	at, end int64
	// holder is chosen before sending, so that what it won can be told when the
	// answer is lost.
	holder, replica string
	attempt         int
	// tries are the runs since the occurrence was won, this one included; asked
	// tells that an operator has asked for it.
	tries int
	asked bool
	// old is the holder of the run that was cut off.
	old string
	// request is the key of the request.
	request []byte
	// ttl is how long the claim lasts, and life how long its entry does at least.
	ttl, life time.Duration
	allow     bool // runs may overlap
	// missed are occurrences before at, newest first; cut says that there are more.
	missed         []int64
	cut            bool
	schedule, zone string
}

// taking guards what a take changes: kv_meta.ok is 2 from where it has found
// something to its end.
const taking = `(SELECT ok FROM kv_meta WHERE id = 0) = 2`

const begin = `UPDATE kv_meta SET ok = 2, seq = seq + 1 WHERE id = 0 AND `

var (
	known    = `EXISTS (SELECT 1 FROM kv l WHERE l.k = :last AND ` + live("l") + ` AND ` + object("l")
	settled  = `max(` + number("l", "bucket") + `, ` + number("l", "since") + `)`
	unpaused = `NOT EXISTS (SELECT 1 FROM kv p WHERE p.k = :pause AND ` + live("p") + `)`
	alone    = `(:allow OR NOT EXISTS (SELECT 1 FROM ` + open + ` AND e.k <> :entry AND (` + number("e", "until") + ` > ` + kv.Now + ` OR :strict)))`
	cutOff   = `EXISTS (SELECT 1 FROM kv e WHERE e.k = :entry AND ` + running("e") + ` AND ` + field("e", "holder") + ` = :old AND ` +
		number("e", "until") + ` <= ` + kv.Now + ` AND ` + number("e", "attempt") + ` = :attempt - :counted)`

	begins = map[kind]string{
		takeDue: begin + `:at <= ` + kv.Now + ` AND ` + kv.Now + ` < :end AND ` + unpaused + ` AND ` + known + ` AND ` + settled + ` < :at)
			AND NOT EXISTS (SELECT 1 FROM kv e WHERE e.k = :entry AND ` + live("e") + `) AND ` + alone,
		takeRequest: begin + known + `) AND EXISTS (SELECT 1 FROM kv r WHERE r.k = :request AND ` + live("r") + `)
			AND NOT EXISTS (SELECT 1 FROM kv e WHERE e.k = :entry AND ` + running("e") + `) AND NOT EXISTS (SELECT 1 FROM kv r WHERE r.k = :run) AND ` + alone,
		takeRepeat: begin + cutOff + ` AND (:asked OR ` + unpaused + `) AND ` + alone,
		takeClose:  begin + cutOff,
		takeNew:    begin + `NOT ` + known + `)`,
	}

	newSQL = `INSERT INTO kv(k, v, ver, expires_at) SELECT :last, json_object('since', ` + kv.Now + `, 'schedule', :schedule, 'zone', :zone), seq, NULL
	FROM kv_meta WHERE id = 0 AND ok = 2 ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = NULL`

	// Runs whose entry has expired while they were under way.
	deadSQL = `UPDATE kv SET v = json_set(kv.v, '$.outcome', 'interrupted', '$.finished_at', ` + kv.Now + `)
	WHERE k IN (SELECT r.k FROM kv l CROSS JOIN ` + listed + ` JOIN kv r ON r.k > ` + key(`:runs`, `o.value`) + ` AND r.k < CAST(` + key(`:runs`, `o.value`) + ` || x'FF' AS BLOB)
		WHERE l.k = :last AND o.type = 'integer' AND ` + object("r") + ` AND ` + field("r", "outcome") + ` IS NULL
		AND NOT EXISTS (SELECT 1 FROM kv e WHERE e.k = ` + key(`:entries`, `o.value`) + ` AND ` + live("e") + `))
	AND ` + taking

	entrySQL = `INSERT INTO kv(k, v, ver, expires_at) SELECT :entry, json_object('holder', :holder, 'replica', :replica, 'attempt', :attempt,
		'tries', :tries, 'request', json(CASE WHEN :asked THEN 'true' ELSE 'false' END), 'state', 'running', 'until', ` + kv.Now + ` + :ttl, 'started_at', ` + kv.Now + `), seq, ` + kv.Now + ` + :ttl + :life
	FROM kv_meta WHERE id = 0 AND ok = 2 ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`

	missedSQL = `INSERT INTO kv(k, v, ver, expires_at)
	SELECT CAST(` + key(`:runs`, `m.value`) + ` || :zero AS BLOB), json_patch(json_object('replica', :replica, 'attempt', 0,
		'outcome', CASE WHEN NOT :allow AND m.value <= coalesce(` + field("l", "finished_at") + `, ` + field("l", "until") + `, 0) THEN 'skipped' ELSE 'missed' END),
		CASE WHEN m.value = :cut THEN json_object('error', '` + othersBefore + `') ELSE '{}' END), t.seq, ` + kv.Now + ` + :keep
	FROM json_each(:missed) m JOIN kv l ON l.k = :last JOIN kv_meta t ON t.id = 0 AND t.ok = 2 WHERE m.value > ` + settled + ` AND m.value < :at
	ON CONFLICT(k) DO NOTHING RETURNING json_extract(v, '$.outcome')`

	lastSQL = `UPDATE kv SET ver = (SELECT seq FROM kv_meta), v = json_set(CASE WHEN :main OR ` + field("kv", "bucket") + ` = :at
		THEN json_set(json_remove(kv.v, '$.finished_at', '$.outcome'), '$.bucket', :at, '$.holder', :holder, '$.replica', :replica, '$.attempt', :attempt,
			'$.until', ` + kv.Now + ` + :ttl, '$.started_at', ` + kv.Now + `, '$.schedule', :schedule, '$.zone', :zone,
			'$.from', CASE WHEN ` + field("kv", "schedule") + ` IS :schedule AND ` + field("kv", "zone") + ` IS :zone THEN coalesce(` + field("kv", "from") + `, :at) ELSE :at END)
		ELSE kv.v END, '$.open', json((SELECT json_group_array(a) FROM (SELECT o.value AS a FROM ` + open + ` UNION SELECT :at))))
	WHERE k = :last AND ` + object("kv") + ` AND ` + taking

	runSQL = `INSERT INTO kv(k, v, ver, expires_at) SELECT :run, json_patch(json_object('replica', :replica, 'attempt', :attempt, 'started_at', ` + kv.Now + `),
		CASE WHEN :asked THEN json_object('request', json('true')) ELSE '{}' END), seq, ` + kv.Now + ` + :keep
	FROM kv_meta WHERE id = 0 AND ok = 2 ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`

	// What was handed back is no longer missed.
	unmissedSQL = `DELETE FROM kv WHERE k = :unrun AND ` + taking

	requestSQL = `DELETE FROM kv WHERE k = :request AND ` + taking

	endSQL = `UPDATE kv_meta SET ok = 1 WHERE id = 0 AND ok = 2`
)

// trim removes the oldest runs over [History].
func trim(guard string) string {
	return `DELETE FROM kv WHERE k IN (SELECT k FROM kv WHERE k > :runs AND k < CAST(:runs || x'FF' AS BLOB) ORDER BY k DESC LIMIT -1 OFFSET 1000) AND ` + guard
}

// The statements that end a run. A claim that is handed back, :state running,
// ends now, so that the next poll of any replica repeats it.
func entryEnd(guard string) string {
	return `UPDATE kv SET ver = (SELECT seq FROM kv_meta), expires_at = ` + kv.Now + ` + :life,
	v = json_patch(json_set(kv.v, '$.state', :state, '$.until', ` + kv.Now + `, '$.attempt', :attempt - :back,
		'$.tries', ` + tries("kv") + ` - :back), :error) WHERE k = :entry AND ` + object("kv") + ` AND ` + guard
}

func runEnd(guard string) string {
	return `UPDATE kv SET v = json_patch(json_set(kv.v, '$.outcome', :outcome, '$.finished_at', coalesce(` + field("kv", "finished_at") + `, ` + kv.Now + `)), :error)
	WHERE k = :run AND ` + object("kv") + ` AND ` + guard
}

func lastEnd(guard string) string {
	return `UPDATE kv SET ver = (SELECT seq FROM kv_meta), v = json_set(CASE WHEN ` + field("kv", "bucket") + ` = :at
		THEN json_set(kv.v, '$.outcome', :outcome, '$.finished_at', ` + kv.Now + `, '$.until', ` + kv.Now + `) ELSE kv.v END,
		'$.open', json((SELECT json_group_array(o.value) FROM ` + open + `)))
	WHERE k = :last AND ` + object("kv") + ` AND ` + guard
}

// keys are the values of the names that are keys.
func keys(name string, at int64, attempt int) map[string]any {
	return map[string]any{
		":last": tuple.MustEncode(PrefixLast, name), ":pause": tuple.MustEncode(PrefixPause, name),
		":entries": tuple.MustEncode(PrefixOccurrence, name), ":entry": tuple.MustEncode(PrefixOccurrence, name, tuple.Millis(at)),
		":runs": tuple.MustEncode(PrefixRun, name), ":run": runKey(name, at, attempt), ":unrun": runKey(name, at, 0), ":zero": tuple.MustEncode(0),
		":at": at, ":attempt": attempt, ":keep": Keep.Milliseconds(), ":name": name,
	}
}

// statements returns the statements of the take, for one write transaction, and
// the index of the one that returns what was missed, or -1.
func (t take) statements() (stmts []libsql.Statement, missed int) {
	args := keys(t.name, t.at, t.attempt)
	args[":end"], args[":holder"], args[":replica"], args[":old"] = t.end, t.holder, t.replica, t.old
	args[":ttl"], args[":life"], args[":allow"], args[":request"] = t.ttl.Milliseconds(), t.life.Milliseconds(), t.allow, t.request
	args[":schedule"], args[":zone"], args[":missed"], args[":cut"] = t.schedule, t.zone, encoded(append([]int64{}, t.missed...)), int64(0)
	args[":tries"], args[":asked"] = t.tries, t.asked
	args[":main"] = t.kind == takeDue
	// A run that was cut off is dealt with before another one begins.
	args[":strict"] = t.kind != takeRepeat
	args[":counted"] = 1
	if t.kind == takeClose {
		args[":counted"] = 0
	}
	if t.cut && len(t.missed) > 0 {
		args[":cut"] = t.missed[len(t.missed)-1]
	}
	missed = -1
	add := func(sql string) { stmts = append(stmts, kv.Bind(sql, args)) }
	add(begins[t.kind])
	switch t.kind {
	case takeNew:
		add(newSQL)
	case takeClose:
		args[":state"], args[":outcome"], args[":back"], args[":error"] = Failed, Interrupted, 0, `{}`
		add(entryEnd(taking))
		if t.tries > 0 {
			add(runEnd(taking))
		}
		add(lastEnd(taking))
	default:
		switch {
		case t.kind == takeRepeat && t.tries == 1:
			if !t.asked {
				add(unmissedSQL)
			}
		case t.kind == takeRepeat:
			args[":run"], args[":outcome"], args[":error"] = runKey(t.name, t.at, t.attempt-1), Interrupted, `{}`
			add(runEnd(taking))
			args[":run"] = runKey(t.name, t.at, t.attempt)
		}
		if t.kind == takeDue {
			missed = len(stmts)
			add(missedSQL)
		}
		add(deadSQL)
		add(entrySQL)
		add(lastSQL)
		add(runSQL)
		if t.kind == takeRequest {
			add(requestSQL)
		}
		add(trim(taking))
	}
	return append(stmts, libsql.S(endSQL)), missed
}
