package kv

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Plan is one commit under construction: checks, mutations, and statements
// that other packages add so that they are one transaction with them.
//
// It runs as a verdict (do all checks hold?), followed by statements that are
// each guarded by it, so that a refused plan changes nothing and is no error.
type Plan struct {
	checks   strings.Builder // JSON list of [hex key, stamp]
	nchecks  int
	conds    []string
	condArgs []any
	sets     bool
	stmts    []libsql.Statement
	// shared are the statements whose last argument is a budget.
	shared []int
}

// NewPlan returns an empty plan.
func NewPlan() *Plan { return &Plan{} }

// Check demands that the live entry of the encoded key has the stamp; a zero
// stamp demands that there is none. It sees the state before any mutation.
func (p *Plan) Check(key []byte, stamp Versionstamp) *Plan {
	if p.nchecks > 0 {
		p.checks.WriteByte(',')
	}
	fmt.Fprintf(&p.checks, `["%s",%d]`, hex.EncodeToString(key), int64(stamp))
	p.nchecks++
	return p
}

// Require demands that an SQL condition holds. The condition uses plain ?
// placeholders.
func (p *Plan) Require(cond string, args ...any) *Plan {
	p.conds = append(p.conds, "("+cond+")")
	p.condArgs = append(p.condArgs, args...)
	return p
}

// Stamped has the commit take a new versionstamp, for statements that store
// the column kv_meta.seq themselves.
func (p *Plan) Stamped() *Plan { p.sets = true; return p }

// Set stores JSON text under the encoded key for ttl, or for ever when it is 0.
func (p *Plan) Set(key []byte, value string, ttl time.Duration) *Plan {
	p.sets = true
	var ms any
	if ttl > 0 {
		ms = ttl.Milliseconds()
	}
	p.Add(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, ?, seq, `+Now+` + ? FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`, key, value, ms)
	return p
}

// Delete removes the encoded key.
func (p *Plan) Delete(key []byte) *Plan {
	p.Add(`DELETE FROM kv WHERE k = ? AND `+OK, key)
	return p
}

// SetKey is Set for a key that comes from outside.
func (p *Plan) SetKey(key tuple.Key, value any, ttl time.Duration) error {
	k, err := key.Encode()
	if err != nil {
		return err
	}
	if len(key) > 0 && key[0] == "dwk_lease" && ttl <= 0 {
		return fmt.Errorf("%s: a lease without expiry would block its object for ever", key)
	}
	v, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("value of %s: %w", key, err)
	}
	p.Set(k, string(v), ttl)
	return nil
}

// CheckKey is Check for a key that comes from outside.
func (p *Plan) CheckKey(key tuple.Key, stamp Versionstamp) error {
	k, err := key.Encode()
	if err != nil {
		return err
	}
	p.Check(k, stamp)
	return nil
}

// DeleteKey is Delete for a key that comes from outside.
func (p *Plan) DeleteKey(key tuple.Key) error {
	k, err := key.Encode()
	if err != nil {
		return err
	}
	p.Delete(k)
	return nil
}

// Add appends a statement, which must be guarded by [OK] or by kv_meta.ok when
// it changes anything, and returns the index of its result in Verdict.Results.
func (p *Plan) Add(sql string, args ...any) int {
	p.stmts = append(p.stmts, libsql.S(sql, args...))
	return len(p.stmts) - 1
}

// AddShared is Add for a statement whose last argument is a budget in bytes:
// plans that share a transaction divide it, because they share its answer too.
func (p *Plan) AddShared(sql string, args ...any) int {
	p.shared = append(p.shared, len(p.stmts))
	return p.Add(sql, args...)
}

// verdict decides once, before any mutation. The clock of the statement is
// read once for all its conditions.
func (p *Plan) verdict() libsql.Statement {
	conds, args := p.conds, p.condArgs
	if p.nchecks > 0 {
		conds = append([]string{`NOT EXISTS (SELECT 1 FROM json_each(?) c LEFT JOIN kv ON kv.k = unhex(c.value->>0) AND ` + Live + `
		WHERE coalesce(kv.ver, 0) <> c.value->>1)`}, conds...)
		args = append([]any{"[" + p.checks.String() + "]"}, args...)
	}
	if len(conds) == 0 {
		return libsql.S(`UPDATE kv_meta SET ok = 1 WHERE id = 0`)
	}
	return libsql.S(`UPDATE kv_meta SET ok = (`+strings.Join(conds, " AND ")+`) WHERE id = 0`, args...)
}

// Statements returns the plan as the statements of one write transaction. The
// last one selects the verdict row.
func (p *Plan) Statements() []libsql.Statement { return p.statements(p.verdict(), 1) }

// statements returns the plan as the store commits it, as one of members that
// share a transaction.
func (s *Store) statements(p *Plan, members int) []libsql.Statement {
	v := p.verdict()
	if s.guard != "" {
		v.SQL = strings.Replace(v.SQL, `ok = `, `ok = (`+s.guard+`) AND `, 1)
		v.Args = append(slices.Clone(s.guardArgs), v.Args...)
	}
	return p.statements(v, members)
}

func (p *Plan) statements(verdict libsql.Statement, members int) []libsql.Statement {
	out := make([]libsql.Statement, 0, len(p.stmts)+3)
	out = append(out, verdict)
	if p.sets {
		out = append(out, libsql.S(`UPDATE kv_meta SET seq = seq + 1 WHERE id = 0 AND ok = 1`))
	}
	first := len(out)
	out = append(out, p.stmts...)
	for _, i := range p.shared {
		args := slices.Clone(p.stmts[i].Args)
		budget, _ := args[len(args)-1].(int)
		args[len(args)-1] = budget / members
		out[first+i].Args = args
	}
	return append(out, libsql.S(`SELECT ok, seq, `+Now+` FROM kv_meta WHERE id = 0`))
}

// A Verdict is the answer to a plan.
type Verdict struct {
	// OK is false when a check or condition did not hold: nothing was changed.
	OK bool
	// Stamp is the versionstamp of the commit's sets, when OK.
	Stamp Versionstamp
	// NowMs is the primary's clock in epoch milliseconds.
	NowMs int64
	// Results are those of the added statements, Set and Delete included.
	Results []libsql.Result
}

// Commit runs the plan in one round trip. An error is a *libsql.Error, which
// tells whether the plan may have been applied, or [ErrNoVerdict].
func (s *Store) Commit(ctx context.Context, p *Plan) (Verdict, error) {
	sent := clock.Now()
	res, err := s.db.Batch(ctx, libsql.Write, s.statements(p, 1)...)
	if err != nil {
		return Verdict{}, err
	}
	return s.verdictOf(p, res, sent)
}
