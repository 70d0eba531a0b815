package sim

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A primary is the database that all replicas of a scenario share: SQLite in
// memory. It is used again by later scenarios, since what it has compiled is
// worth much more than what it holds.
//
// Its triggers watch what no statement may do, whoever sent it. They write into
// sim_wrong, which is looked at behind each transaction.
type primary struct {
	conn *sqlite.Conn
	// texts are the statements with the scenario's clock in place of SQLite's.
	texts map[string]string

	mu   sync.Mutex
	skew time.Duration // of its clock to that of the replicas
}

// leaseKeys are the keys of leases as a condition on a row of kv.
const leaseKeys = `k >= x'0264776b5f6c6561736500' AND k < x'0264776b5f6c6561736501'`

// watch are the triggers. sim_now.began is the time at which the transaction
// began, so that a verdict may be older than the statement that rests on it.
var watch = []string{
	`CREATE TEMP TABLE sim_now(ms INTEGER, began INTEGER, sweep INTEGER, sender TEXT)`,
	`INSERT INTO sim_now VALUES (0, 0, 0, '')`,
	`CREATE TEMP TABLE sim_key(class TEXT, id TEXT, k BLOB)`,
	`CREATE TEMP TABLE sim_wrong(what TEXT)`,
	// P1: a commit is made under the lease that it names, and that is live.
	commitTrigger("insert", `AFTER INSERT ON main.obj_head`),
	commitTrigger("update", `AFTER UPDATE OF txid ON main.obj_head`),
	// Positions follow each other.
	`CREATE TEMP TRIGGER sim_txid AFTER UPDATE OF txid ON main.obj_head WHEN NEW.txid <> OLD.txid + 1
	BEGIN INSERT INTO sim_wrong VALUES ('the head of ' || NEW.id || ' goes from ' || OLD.txid || ' to ' || NEW.txid); END`,
	// A live lease goes to nobody else, and keeps its stamp while it is held.
	`CREATE TEMP TRIGGER sim_lease AFTER UPDATE ON main.kv WHEN OLD.` + leaseKeys0("OLD") + ` AND OLD.expires_at > (SELECT ms FROM sim_now)
	AND OLD.ver <> NEW.ver AND (json_extract(OLD.v, '$.replica') <> json_extract(NEW.v, '$.replica') OR json_extract(OLD.v, '$.holder') = json_extract(NEW.v, '$.holder'))
	BEGIN INSERT INTO sim_wrong VALUES ('a live lease is taken away: ' || OLD.v || ' by ' || NEW.v); END`,
	// Nobody but an operator ends another replica's lease.
	`CREATE TEMP TRIGGER sim_release AFTER DELETE ON main.kv WHEN OLD.` + leaseKeys0("OLD") + ` AND OLD.expires_at > (SELECT ms FROM sim_now)
	AND (SELECT sender FROM sim_now) NOT IN ('', json_extract(OLD.v, '$.replica'))
	BEGIN INSERT INTO sim_wrong SELECT 'a live lease is released by ' || sender || ': ' || OLD.v FROM sim_now; END`,
	// P9 the other way round: a sweep removes what has expired.
	`CREATE TEMP TRIGGER sim_sweep AFTER DELETE ON main.kv WHEN (SELECT sweep FROM sim_now) AND (OLD.expires_at IS NULL OR OLD.expires_at > (SELECT ms FROM sim_now))
	BEGIN INSERT INTO sim_wrong VALUES ('a live entry is swept: ' || hex(OLD.k) || ' ' || OLD.v); END`,
}

func leaseKeys0(row string) string { return strings.ReplaceAll(leaseKeys, "AND k", "AND "+row+".k") }

func commitTrigger(name, when string) string {
	return `CREATE TEMP TRIGGER sim_commit_` + name + ` ` + when + ` WHEN NOT EXISTS (SELECT 1 FROM sim_key s JOIN main.kv ON kv.k = s.k
	WHERE s.class = NEW.class AND s.id = NEW.id AND kv.ver = NEW.epoch AND kv.expires_at > (SELECT began FROM sim_now))
	BEGIN INSERT INTO sim_wrong VALUES ('a commit ' || NEW.txid || ' of ' || NEW.id || ' without a live lease of stamp ' || NEW.epoch); END`
}

// primaries are those that no scenario uses.
var (
	primariesMu sync.Mutex
	primaries   []*primary
)

// takePrimary returns an empty database.
func takePrimary(t *testing.T) *primary {
	primariesMu.Lock()
	defer primariesMu.Unlock()
	if n := len(primaries); n > 0 {
		p := primaries[n-1]
		primaries = primaries[:n-1]
		return p
	}
	conn, err := sqlite.Open(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	conn.LimitCache(1000)
	p := &primary{conn: conn, texts: map[string]string{}}
	for _, list := range [][]string{kv.Schema, objlog.Schema, watch} {
		for _, sql := range list {
			if err := conn.Exec(sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	return p
}

// giveBack empties the database for the next scenario.
func (p *primary) giveBack(t *testing.T) {
	p.skew = 0
	for _, sql := range []string{`DELETE FROM kv`, `DELETE FROM obj_head`, `DELETE FROM obj_log`, `DELETE FROM sim_key`, `DELETE FROM sim_wrong`,
		`UPDATE kv_meta SET seq = 0, ok = 0`} {
		if err := p.conn.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	primariesMu.Lock()
	defer primariesMu.Unlock()
	primaries = append(primaries, p)
}

// object tells the triggers of an object.
func (p *primary) object(class, id string) {
	p.mustRun(libsql.S(`INSERT INTO sim_key VALUES (?, ?, ?)`, class, id, lease.Key(class, id)))
}

// now is the primary's time.
func (p *primary) now() time.Time { return time.Now().Add(p.skew) }

// step makes the primary's clock wrong by d more.
func (p *primary) step(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew += d
}

var (
	errInjected = errors.New("a statement that fails")
	sweepSQL    = kv.SweepStatement(0).SQL
)

// run runs a batch in one transaction. Between two statements the clock may go
// on by pause. fail has it end with an error. The sender is a replica, or ""
// for an operator.
func (p *primary) run(sender string, stmts []libsql.Statement, pause time.Duration, fail bool) (res []libsql.Result, wrong []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.now()
	p.mustRun(libsql.S(`UPDATE sim_now SET ms = ?1, began = ?1, sender = ?2`, at.UnixMilli(), sender))
	p.mustRun(libsql.S(`BEGIN`))
	for i, s := range stmts {
		if pause > 0 && i > 0 {
			at = at.Add(pause)
			p.mustRun(libsql.S(`UPDATE sim_now SET ms = ?`, at.UnixMilli()))
		}
		if s.SQL == sweepSQL {
			p.mustRun(libsql.S(`UPDATE sim_now SET sweep = 1`))
		}
		r, err := p.statement(s)
		if s.SQL == sweepSQL {
			p.mustRun(libsql.S(`UPDATE sim_now SET sweep = 0`))
		}
		if err == nil && fail && i == len(stmts)-1 {
			err = errInjected
		}
		if err != nil {
			p.mustRun(libsql.S(`ROLLBACK`))
			if !errors.Is(err, errInjected) {
				wrong = append(wrong, fmt.Sprintf("a statement failed: %v: %s", err, s.SQL))
			}
			return nil, wrong, &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindSQL, Statement: i, Addr: "sim", Err: err}
		}
		res = append(res, r)
	}
	for _, row := range p.mustRun(libsql.S(`SELECT what FROM sim_wrong`)).Rows {
		wrong = append(wrong, row[0].(string))
	}
	if wrong != nil {
		p.mustRun(libsql.S(`DELETE FROM sim_wrong`))
	}
	p.mustRun(libsql.S(`COMMIT`))
	return res, wrong, nil
}

func (p *primary) mustRun(s libsql.Statement) libsql.Result {
	r, err := p.statement(s)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", s.SQL, err))
	}
	return r
}

// text is a statement under the scenario's clock.
func (p *primary) text(sql string) string {
	text, ok := p.texts[sql]
	if !ok {
		text = strings.ReplaceAll(sql, kv.Now, `(SELECT ms FROM sim_now)`)
		if strings.Contains(text, "unixepoch") || strings.Contains(text, "'now'") {
			panic("a statement asks SQLite for the time: " + sql)
		}
		p.texts[sql] = text
	}
	return text
}

func (p *primary) statement(stmt libsql.Statement) (r libsql.Result, err error) {
	s, err := p.conn.Statement(p.text(stmt.SQL))
	if err != nil {
		return r, err
	}
	defer s.Done() //nolint:errcheck // reported by the steps
	if s.Params() != len(stmt.Args) {
		return r, fmt.Errorf("%d arguments for %d parameters", len(stmt.Args), s.Params())
	}
	for i, a := range stmt.Args {
		switch v := a.(type) {
		case int:
			a = int64(v)
		case bool:
			a = int64(0)
			if v {
				a = int64(1)
			}
		}
		if err := s.Bind(i+1, a); err != nil {
			return r, err
		}
	}
	before := p.conn.TotalChanges()
	row, err := s.Step()
	for ; row; row, err = s.Step() {
		r.Rows = append(r.Rows, s.Row(nil))
	}
	if err == nil && p.conn.TotalChanges() != before {
		r.Changes = p.conn.Changes()
	}
	return r, err
}
