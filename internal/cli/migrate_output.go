package cli

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/term"
)

// kindNames are what people call the kinds, one and several.
var kindNames = map[migrate.Kind][2]string{
	migrate.SQL:     {"SQL database", "SQL databases"},
	migrate.Objects: {"object", "objects"},
	migrate.Buckets: {"body", "bodies"},
	migrate.Queues:  {"backlog", "backlogs"},
}

func kindItems(k migrate.Kind, n int64) string {
	i := 1
	if n == 1 {
		i = 0
	}
	return fmt.Sprintf("%d %s", n, kindNames[k][i])
}

// sizeText writes bytes for people.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 3 {
		v, i = v/unit, i+1
	}
	return fmt.Sprintf("%.1f %s", v, []string{"KiB", "MiB", "GiB", "TiB"}[i])
}

// shownProblems is how many problems a table has.
const shownProblems = 50

func showMove(t *term.Term, r *migrate.Result) error {
	if t.JSON {
		return t.WriteJSON(r)
	}
	moved := "MOVED"
	if r.DryRun {
		moved = "WOULD MOVE"
	}
	tb := term.NewTable("KIND", "ITEMS", "SIZE", moved, "ALREADY THERE", "NOT MOVED", "LEFT OUT")
	for _, k := range append(migrate.Kinds, "kv") {
		c := r.Counts[k]
		if c == nil {
			continue
		}
		name := "caches"
		if n, ok := kindNames[k]; ok {
			name = n[1]
		}
		text := fmt.Sprint(c.Moved)
		if k == migrate.Queues && c.Rows > 0 {
			text = fmt.Sprintf("%d messages", c.Rows)
		}
		tb.Row(name, c.Items, sizeText(c.Bytes), text, c.Already, c.Bad, c.Left)
	}
	if err := t.Table(tb); err != nil || len(r.Problems) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(t.Out); err != nil {
		return err
	}
	pb := term.NewTable("ITEM", "OUTCOME", "WHY")
	for _, l := range r.Problems[:min(len(r.Problems), shownProblems)] {
		pb.Row(l.Item, string(l.Outcome), l.Reason)
	}
	if n := r.ProblemCount - shownProblems; n > 0 {
		pb.Row("", "", fmt.Sprintf("and %d more: --report names all", n))
	}
	return t.Table(pb)
}

// Intervals of the progress: on a terminal a line is shown again and again,
// elsewhere now and then one is written.
const (
	progressScreen = 500 * time.Millisecond
	progressLines  = 10 * time.Second
)

// watchMove shows the progress of a move on the error stream until the function
// that it returns is called.
func (e *env) watchMove(p *migrate.Progress) (end func()) {
	if e.term.Quiet {
		return func() {}
	}
	screen := e.term.ErrIsTerminal()
	every := progressLines
	if screen {
		every = progressScreen
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	began := clock.Now()
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				text := progressText(p.Snapshot(), clock.Since(began))
				if screen {
					fmt.Fprintf(e.term.Err, "\r\x1b[K%s", text)
				} else {
					e.term.Notef("%s", text)
				}
			case <-stop:
				if screen {
					fmt.Fprint(e.term.Err, "\r\x1b[K")
				}
				return
			}
		}
	})
	return func() { close(stop); wg.Wait() }
}

// progressText is one line: what is done, the rate and the time left.
func progressText(list []migrate.Snapshot, since time.Duration) string {
	var parts []string
	var total, done, skipped int64
	for _, s := range list {
		if s.TotalItems == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d of %s", s.Items, kindItems(s.Kind, s.TotalItems)))
		total, done, skipped = total+s.TotalBytes, done+s.Bytes, skipped+s.Skipped
	}
	text := strings.Join(parts, ", ") + fmt.Sprintf("; %s of %s", sizeText(done), sizeText(total))
	if seconds := since.Seconds(); seconds >= 1 && done > skipped {
		rate := float64(done-skipped) / seconds
		left := time.Duration(float64(max(0, total-done)) / rate * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %s left", sizeText(int64(rate)), short(left.Round(time.Second)))
	}
	return text
}
