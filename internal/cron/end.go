package cron

import (
	"context"
	"errors"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Committer runs a plan: a kv.Store, or a group of plans on it.
type Committer interface {
	Commit(ctx context.Context, p *kv.Plan) (kv.Verdict, error)
}

var errClaimLost = errors.New("the claim on the run was lost")

// A claim is an occurrence that this replica has won.
type claim struct {
	name    string
	at      int64
	attempt int
	holder  string
	ttl     time.Duration
	life    time.Duration
}

// ours demands that nobody has taken the claim over.
func (c claim) ours(p *kv.Plan, more string) *kv.Plan {
	args := keys(c.name, c.at, c.attempt)
	args[":holder"] = c.holder
	s := kv.Bind(`EXISTS (SELECT 1 FROM kv e WHERE e.k = :entry AND `+live("e")+` AND `+field("e", "holder")+` = :holder AND `+number("e", "attempt")+` = :attempt`+more+`)`, args)
	return p.Require(s.SQL, s.Args...)
}

// renewal extends the claim, unless it has ended: then another run may have
// begun.
func (c claim) renewal() *kv.Plan {
	args := keys(c.name, c.at, c.attempt)
	args[":ttl"], args[":life"], args[":holder"] = c.ttl.Milliseconds(), c.life.Milliseconds(), c.holder
	p := c.ours(kv.NewPlan(), ` AND `+field("e", "state")+` = 'running' AND `+number("e", "until")+` > `+kv.Now)
	for _, sql := range []string{
		`UPDATE kv SET v = json_set(v, '$.until', ` + kv.Now + ` + :ttl), expires_at = ` + kv.Now + ` + :ttl + :life WHERE k = :entry AND ` + kv.OK,
		`UPDATE kv SET v = json_set(v, '$.until', ` + kv.Now + ` + :ttl) WHERE k = :last AND ` + field("kv", "bucket") + ` = :at AND ` + field("kv", "holder") + ` = :holder AND ` + kv.OK,
	} {
		s := kv.Bind(sql, args)
		p.Add(s.SQL, s.Args...)
	}
	return p
}

// A result is how a run has ended. Without an outcome it has not begun.
type result struct {
	outcome, err string
}

// What has not begun at all is listed as missed until somebody repeats it.
var unrunSQL = `INSERT INTO kv(k, v, ver, expires_at) SELECT :unrun, json_object('replica', ` + field("e", "replica") + `, 'attempt', 0, 'outcome', 'missed'), t.seq, ` + kv.Now + ` + :keep
	FROM kv e JOIN kv_meta t ON t.id = 0 WHERE e.k = :entry AND :attempt = 1 AND NOT coalesce(` + field("e", "request") + `, 0) AND ` + kv.OK + ` ON CONFLICT(k) DO NOTHING`

// ending stores the result. It may be repeated. What was interrupted or has not
// begun is another replica's to run, at once.
func (c claim) ending(r result) *kv.Plan {
	args := keys(c.name, c.at, c.attempt)
	args[":life"], args[":outcome"], args[":back"], args[":error"] = c.life.Milliseconds(), r.outcome, 0, `{}`
	args[":state"] = map[string]string{OK: "done", Failed: "failed"}[r.outcome]
	if r.err != "" {
		args[":error"] = encoded(map[string]string{"error": cut(r.err, maxError)})
	}
	run := runEnd(kv.OK)
	more := ``
	switch r.outcome {
	case "":
		args[":back"], args[":outcome"] = 1, Interrupted
		run = `DELETE FROM kv WHERE k = :run AND ` + kv.OK
		fallthrough
	case Interrupted:
		args[":state"] = "running"
		more = ` AND ` + field("e", "state") + ` = 'running'`
	}
	p := c.ours(kv.NewPlan(), more).Stamped()
	stmts := []string{entryEnd(kv.OK), run, lastEnd(kv.OK), trim(kv.OK)}
	if r.outcome == "" {
		stmts = append(stmts, unrunSQL)
	}
	for _, sql := range stmts {
		s := kv.Bind(sql, args)
		p.Add(s.SQL, s.Args...)
	}
	return p
}

// end stores how a run has ended, until the outcome is known. It reports whether
// the claim was still ours.
func (c *Runner) end(cl claim, r result) (ours bool) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		v, err := c.cfg.Commits.Commit(ctx, cl.ending(r))
		cancel()
		if err == nil {
			return v.OK
		}
		c.unstored(cl, r, err)
		if libsql.OutcomeOf(err) == libsql.Failed && !retryable(err) {
			return false
		}
		select {
		case <-time.After(wait):
		case <-c.gone:
			return false
		}
	}
}

// retryable reports whether a failed statement may work later: it was not wrong.
func retryable(err error) bool {
	kind, ok := libsql.KindOf(err)
	return !ok || kind != libsql.KindSQL && kind != libsql.KindConstraint && kind != libsql.KindTooLarge
}

// endTimeout bounds one try to store how a run has ended.
const endTimeout = 30 * time.Second
