package keeper_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A recorder is a database that remembers the statements it was given.
type recorder struct {
	*libsql.DB
	mu   sync.Mutex
	seen map[string]libsql.Statement
}

func (r *recorder) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	r.mu.Lock()
	for _, s := range stmts {
		r.seen[s.SQL] = s
	}
	r.mu.Unlock()
	return r.DB.Batch(ctx, mode, stmts...)
}

// Scans of what is small: recursive tables, lists of the caller, covers.
var harmless = regexp.MustCompile(`^SCAN (p|b|c|t|f|s|path|covers|CONSTANT ROW|json_each|\(subquery-\d+\))( |$)`)

// TestQueryPlans: no statement looks at more of a table than it is about.
func TestQueryPlans(t *testing.T) {
	w := newWorld(t, libsqltest.File, 7)
	steps := 400
	if testing.Short() {
		steps = 150
	}
	for range steps {
		w.step()
	}
	w.checkAll()
	for sql, s := range w.recorder.seen {
		verb, _, _ := strings.Cut(strings.TrimSpace(sql), " ")
		if strings.HasPrefix(verb, "CREATE") {
			continue
		}
		r, err := w.db.Batch(t.Context(), libsql.Read, libsql.S("EXPLAIN QUERY PLAN "+sql, s.Args...))
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		var plan []string
		bad := false
		for _, row := range r[0].Rows {
			line := fmt.Sprint(row[3])
			plan = append(plan, line)
			bad = bad || strings.HasPrefix(line, "SCAN") && !harmless.MatchString(line)
			// A search that uses only the class would be a scan in disguise.
			bad = bad || strings.Contains(line, "PRIMARY KEY (class=?)")
		}
		if bad {
			t.Errorf("%s\n\t%s", sql, strings.Join(plan, "\n\t"))
		}
	}
	t.Logf("%d statements", len(w.recorder.seen))
}
