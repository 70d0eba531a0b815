package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/audit"
	"github.com/davidwkeith/dwk/internal/term"
)

const (
	defaultSample  = 20
	defaultOverdue = time.Minute
	defaultSettle  = 3 * time.Second
)

type auditOptions struct {
	audit.Options
	overdue, settle optionalDuration
	since           sinceFlag
}

func newAudit(e *env) *cobra.Command {
	var o auditOptions
	o.overdue.d, o.settle.d = defaultOverdue, defaultSettle
	var lines strings.Builder
	for _, c := range audit.Checks {
		fmt.Fprintf(&lines, "  %-18s %s\n", c.Name, c.Text)
	}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check what must always hold of what is stored",
		Long: `Check what must always hold of what is stored, and name each thing that does not:
entries, leases, alarms, queues, schedules, the logs of all objects and their files in the
object store, and the databases of some objects, put together from their logs.

It only reads, needs no replica and disturbs none. What belongs together is read
in one transaction, and what looks wrong is looked at again after a moment, so
that what changes while it reads is not reported. Memory does not grow with the
store; the database of one object at a time is put together in $TMPDIR.

Exits 1 when it found something. Under -o json each finding is a line, as soon as
it is found, and a last line sums up.

` + strings.TrimSuffix(lines.String(), "\n"),
		Example: `  dwk audit
  dwk audit --deep -o json > audit.jsonl
  dwk audit --class Counter --since 24h --overdue 5s`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.BoolVar(&o.Deep, "deep", false, "put the database of every object together and check it")
	f.IntVar(&o.Sample, "sample", defaultSample, "check the databases of `N` objects, chosen at random")
	f.StringVar(&o.Class, "class", "", "only what belongs to objects of this `CLASS`")
	f.Var(&o.overdue, "overdue", "how late alarms, messages and schedules may be (default 1m)")
	f.Var(&o.since, "since", "judge the runs of alarms and schedules since then: a time such as 2006-01-02T15:04:05Z, or so long ago, such as 24h")
	f.IntVar(&o.Limit, "limit", defaultListLimit, "show at most `N` findings of each check, count the others; 0 is all")
	f.Var(&o.settle, "settle", "how long to wait before a second look at what looks wrong (default 3s)")
	must(cmd.RegisterFlagCompletionFunc("class", e.classes(true)))
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		if err := exclusive(cmd, "deep", "sample"); err != nil {
			return err
		}
		switch {
		case o.Sample < 0:
			return usagef("--sample must not be negative")
		case o.Limit < 0:
			return usagef("--limit must not be negative")
		case o.settle.d == 0:
			return usagef("--settle must be positive")
		}
		o.Overdue, o.Settle, o.Since, o.Ago = o.overdue.d, o.settle.d, o.since.at, o.since.ago
		return runAudit(ctx, e, o.Options)
	})
	return cmd
}

// auditSummaryJSON is the last line of an audit.
type auditSummaryJSON struct {
	Summary audit.Summary `json:"summary"`
	OK      bool          `json:"ok"`
}

func runAudit(ctx context.Context, e *env, o audit.Options) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	sum, err := audit.Run(ctx, audit.Config{
		Store: s.KV, Files: s.files, Objects: s.Ops, StoreID: s.StoreID, LeaseTTL: s.LeaseTTL, Schedules: e.brought(s.Stores.Config),
	}, o, func(f audit.Finding) error {
		if e.term.JSON {
			return e.term.WriteLine(f)
		}
		return showFinding(e.term, f)
	})
	if err != nil {
		return err
	}
	if e.term.JSON {
		err = e.term.WriteLine(auditSummaryJSON{sum, sum.Findings == 0})
	} else {
		err = showAudit(e.term, sum)
	}
	if err != nil || sum.Findings == 0 {
		return err
	}
	return fmt.Errorf("%s: %s", count(sum.Findings, "finding"), faults(sum))
}

// showFinding writes one line for people. Nothing is held back, so that it takes
// no memory.
func showFinding(t *term.Term, f audit.Finding) error {
	about := f.Queue + f.Schedule
	switch {
	case f.Class != "" && f.ID != "":
		about = f.Class + "/" + f.ID
	case f.Class != "":
		about = f.Class
	case about == "" && len(f.Key) > 0:
		about = f.Key.String()
	}
	line := fmt.Sprintf("%-18s %s: %s", f.Check, about, f.Message)
	if about == "" {
		line = fmt.Sprintf("%-18s %s", f.Check, f.Message)
	}
	if f.Reason != "" {
		line += " (" + f.Reason + ")"
	}
	_, err := io.WriteString(t.Out, term.Clean(oneLine(line))+"\n")
	return err
}

func showAudit(t *term.Term, sum audit.Summary) error {
	tb := term.NewTable()
	for _, r := range []struct {
		what string
		n    int64
	}{
		{"entries", sum.Entries}, {"alarms", sum.Alarms}, {"queues", sum.Queues}, {"schedules", sum.Schedules}, {"runs", sum.Runs}, {"objects", sum.Objects},
		{"log rows", sum.Rows}, {"files", sum.Files}, {"databases", sum.Databases}, {"findings", sum.Findings}, {"for information", sum.Information},
	} {
		tb.Row(r.what, r.n)
	}
	return t.Table(tb)
}

// faults lists the checks that found something, with how often.
func faults(sum audit.Summary) string {
	information := map[string]bool{}
	for _, c := range audit.Checks {
		information[c.Name] = c.Information
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(sum.Counts)) {
		if !information[name] {
			out = append(out, fmt.Sprintf("%s %d", name, sum.Counts[name]))
		}
	}
	return strings.Join(out, ", ")
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// sinceFlag is a time, or so long ago.
type sinceFlag struct {
	at   time.Time
	ago  time.Duration
	text string
}

func (s *sinceFlag) String() string { return s.text }

func (s *sinceFlag) Set(text string) error {
	s.text = text
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		s.ago = d
		return nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.UnixMilli() <= 0 {
		return fmt.Errorf("must be a time such as 2006-01-02T15:04:05Z, or so long ago, such as 24h")
	}
	s.at = at
	return nil
}

func (s *sinceFlag) Type() string { return "TIME" }
