package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// No statement of a poll or of a settlement reads the whole table, however
// long the queue is.
func TestQueryPlans(t *testing.T) {
	rows := 200_000
	if testing.Short() {
		rows = 20_000
	}
	f := newFixture(t, libsqltest.File)
	f.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT ?3)
	INSERT INTO kv(k, v, ver) SELECT CAST(`+at(kv.Now+` - 60000 + i % 1000`)+` || ?2 || printf('%08d', i) || x'00' AS BLOB), '{"body":{"i":'||i||'},"attempts":0}', 1 FROM n`,
		dueKey("q"), []byte{2}, rows)
	f.SQL(`ANALYZE`)
	c := newClaim("q")
	c.limit = 100
	p := kv.NewPlan()
	k := append(low("q"), 1)
	settlement{queue: "q", claim: "c", acks: [][]byte{k}, again: []move{{key: k}}, dead: []move{{key: k}}}.add(p)
	addRenew(p, "q", "c", [][]byte{k}, time.Minute)
	stmts := append(p.Statements(), c.bury(), c.take(), locate("q", "c", time.Minute))
	for _, analyzed := range []bool{true, false} {
		if !analyzed {
			f.SQL(`DELETE FROM sqlite_stat1`)
			f.SQL(`ANALYZE sqlite_schema`) // has the planner read it again
		}
		for _, s := range stmts {
			for _, row := range f.SQL(`EXPLAIN QUERY PLAN `+s.SQL, s.Args...) {
				detail, _ := row[3].(string)
				if strings.HasPrefix(detail, "SCAN kv") && !strings.Contains(detail, "kv_meta") || strings.Contains(detail, "SEARCH kv USING INDEX kv_expires") {
					t.Errorf("%s\nin\n%s", detail, s.SQL)
				}
			}
		}
	}
	begin := clock.Now()
	for range 10 {
		c = newClaim("q")
		c.limit = 100
		if taken, _ := f.claim(c); len(taken) != 100 {
			t.Fatalf("%d", len(taken))
		}
	}
	t.Logf("a claim of 100 messages of %d: %s", rows, clock.Since(begin)/10)
	begin = clock.Now()
	for range 10 {
		libsqltest.MustBatch(t, f.db, libsql.Write, newClaim("nothing").bury(), newClaim("nothing").take())
	}
	t.Logf("an idle look: %s", clock.Since(begin)/10)
}
