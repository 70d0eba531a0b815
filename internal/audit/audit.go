// Package audit checks what must always hold of a store set, and names each
// thing that does not. It reads the stores alone: no replica need run, and those
// that do are not disturbed.
//
// Things change while an audit reads. What belongs together is read in one
// transaction, and what looks wrong is looked at again after a moment: only what
// is still wrong then, in the same way, is reported. Memory does not grow with
// the store.
package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/objectops"
)

// Files are the large entries of the logs, as far as an audit needs them.
type Files interface {
	// Size returns the size of a file in bytes, or durable.ErrNotFound.
	Size(ctx context.Context, ref string) (int64, error)
}

// Config is what an audit looks at.
type Config struct {
	Store *kv.Store
	Files Files
	// Objects put databases together.
	Objects *objectops.Ops
	// StoreID is the store set's identity.
	StoreID string
	// Schedules are those that replicas are configured with. Others that were run
	// once are not judged by how late they are.
	Schedules map[string]cron.Options
	// LeaseTTL is that of the replicas: no lease may last longer.
	LeaseTTL time.Duration
}

// Options choose what is checked.
type Options struct {
	// Class, unless empty, leaves out what is not of this class of objects.
	Class string
	// Deep has the database of every object put together and checked, instead
	// of those of Sample objects that are chosen at random.
	Deep   bool
	Sample int
	// Overdue is how late an alarm, message or schedule may be.
	Overdue time.Duration
	// Since, unless it is zero, has the runs of alarms and schedules since then judged by how
	// late they were; Ago means the same so long before now.
	Since time.Time
	Ago   time.Duration
	// Limit bounds how often one check is reported; 0 is no limit. What is beyond
	// is counted.
	Limit int
	// Settle is the moment before a second look; 0 means 3 s.
	Settle time.Duration
}

// defaultSettle is longer than replicas take to notice what is due.
const defaultSettle = 3 * time.Second

// replicaPrefix begins the keys of the registered replicas.
const replicaPrefix = "dwk_replica"

// An auditor makes one audit.
type auditor struct {
	Config
	Options
	report *reporter
	sum    *Summary
	// replicas is the number of registered ones when the audit began.
	replicas int64
	// used tells that there are objects.
	used bool
	// sinceMs is 0 when runs are not judged.
	sinceMs int64
	// filesErr is why files are not looked at any more.
	filesErr error
	sample   sample
	again    bool // a second look is under way
}

// count counts something that was looked at.
func (a *auditor) count(n *int64, more int) {
	if !a.again {
		*n += int64(more)
	}
}

// Run makes the checks and hands over what they find. It fails when the stores
// cannot be read, or with the error of report.
func Run(ctx context.Context, cfg Config, o Options, report func(Finding) error) (Summary, error) {
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	sum := Summary{Counts: map[string]int64{}}
	a := &auditor{Config: cfg, Options: o, sum: &sum, report: &reporter{emit: report, limit: int64(o.Limit), sum: &sum}}
	a.sample.size = o.Sample
	for _, check := range []func(context.Context) error{
		a.begin, a.entries, a.alarms, a.letters, a.runs, a.queues, a.schedules, a.objects, a.strays, a.garbage, a.databases,
	} {
		if err := check(ctx); err != nil {
			return sum, err
		}
	}
	if a.filesErr != nil {
		return sum, fmt.Errorf("the files of the logs could not be checked: %w", a.filesErr)
	}
	return sum, nil
}

// begin looks at what everything else rests on.
func (a *auditor) begin(ctx context.Context) error {
	lo, hi := bounds(replicaPrefix)
	res, err := a.Store.Decide(ctx, libsql.S(`SELECT `+kv.Now), libsql.S(`SELECT count(*) FROM kv_meta WHERE id = 0`),
		libsql.S(`SELECT count(*) FROM kv WHERE k >= ? AND k < ? AND `+kv.Live, lo, hi), libsql.S(`SELECT EXISTS (SELECT 1 FROM obj_head)`))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	now := num(res[0].Rows[0][0])
	a.replicas, a.used = num(res[2].Rows[0][0]), num(res[3].Rows[0][0]) != 0
	switch {
	case !a.Since.IsZero():
		a.sinceMs = a.Since.UnixMilli()
	case a.Ago > 0:
		a.sinceMs = now - a.Ago.Milliseconds()
	}
	if num(res[1].Rows[0][0]) == 0 {
		err = a.report.add(Finding{Check: StoreMeta, Message: "the table kv_meta has no row: every commit is refused"})
	}
	if err != nil {
		return err
	}
	return a.marker(ctx)
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// instant writes epoch milliseconds as people read them.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// span writes a number of milliseconds as people read them.
func span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.String()
}
