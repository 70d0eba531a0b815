package fleet

import (
	"context"
	"fmt"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/queue"
)

// OverdueMs is how long something is due before it is overdue: some polls.
const OverdueMs = 10_000

// A Status is a fleet at one moment, as its stores tell it.
type Status struct {
	Mode     string
	Store    mode.Store
	Replicas []Live
	// Leases are all live ones, and LeftOver those of replicas that are not
	// registered.
	Leases, LeftOver int64
	// Alarms are by class, Messages by queue.
	Alarms, Messages []Backlog
	// Schedules are those that were ever seen. Only those that were Brought, by the
	// applications of who asks, are judged by how late they are; their options are
	// what replicas are configured with.
	Schedules []cron.Survey
	Brought   map[string]cron.Options
	// Expired are the entries that no sweep has removed yet.
	Expired int64
	// NowMs is the primary's clock in epoch milliseconds.
	NowMs int64
}

// A Backlog is what waits of one class or queue.
type Backlog struct {
	Name string `json:"name"`
	// Pending is all that waits or runs, Due what could run, Overdue what could
	// have for longer than [OverdueMs].
	Pending int64 `json:"pending"`
	Due     int64 `json:"due"`
	Overdue int64 `json:"overdue"`
	// OldestMs is for how long the first has been due; 0 when none is.
	OldestMs int64 `json:"oldest_ms"`
	// Dead are the dead letters.
	Dead   int64 `json:"dead"`
	Paused bool  `json:"paused"`
}

// Look reads the status in one round trip, all of it from one moment. Brought may
// be nil.
func Look(ctx context.Context, s *kv.Store, brought map[string]cron.Options) (Status, error) {
	leases, replicas, paused := tuple.MustEncode(lease.Prefix), tuple.MustEncode(ReplicaPrefix), tuple.MustEncode(queue.PrefixPause)
	res, err := s.Decide(ctx, append([]libsql.Statement{
		mode.Statement(),
		replicasStatement(),
		libsql.S(`SELECT count(*), coalesce(sum(NOT EXISTS (SELECT 1 FROM kv r WHERE r.k = CAST(?3 || x'02' || CAST(json_extract(l.v, '$.replica') AS BLOB) || x'00' AS BLOB)
		AND (r.expires_at IS NULL OR r.expires_at > `+kv.Now+`))), 0) FROM kv l WHERE l.k >= ?1 AND l.k < ?2 AND l.expires_at > `+kv.Now, leases, tuple.RangeEnd(leases), replicas),
		backlogStatement(alarm.DuePrefix, beforeNumber),
		backlogStatement(alarm.DeadPrefix, beforeText),
		backlogStatement(queue.PrefixDue, beforeNumber),
		backlogStatement(queue.PrefixDead, beforeNumber),
		libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` LIMIT ?`, paused, tuple.RangeEnd(paused), maxNames),
		libsql.S(`SELECT count(*), ` + kv.Now + ` FROM kv WHERE expires_at <= ` + kv.Now),
	}, cron.SurveyStatements(maxNames)...)...)
	if err != nil {
		return Status{}, fmt.Errorf("look at the fleet: %w", err)
	}
	st := Status{Leases: number(res[2], 0), LeftOver: number(res[2], 1), Expired: number(res[8], 0), NowMs: number(res[8], 1)}
	if st.Mode, st.Store, err = mode.Parse(res[0]); err != nil {
		return Status{}, err
	}
	if st.Replicas, err = readReplicas(res[1]); err != nil {
		return Status{}, err
	}
	st.Alarms = backlogs(st.NowMs, res[3], res[4], libsql.Result{})
	st.Messages = backlogs(st.NowMs, res[5], res[6], res[7])
	st.Schedules, st.Brought = cron.ReadSurvey(res[9:]), brought
	return st, nil
}

func number(r libsql.Result, column int) int64 {
	if len(r.Rows) == 0 {
		return 0
	}
	n, _ := r.Rows[0][column].(int64)
	return n
}

// New reports whether no replica has claimed the store set yet.
func (s Status) New() bool { return s.Mode == "" && s.Store.ID == "" }

// Ready returns the replicas that are ready, of one version unless it is empty.
func (s Status) Ready(version string) (n int) {
	for _, r := range s.Replicas {
		if r.State == Ready && (version == "" || r.Version == version) {
			n++
		}
	}
	return n
}
