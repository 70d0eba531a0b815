package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/term"
)

func newLease(e *env) *cobra.Command {
	return group("lease", "Who runs which object", `Look at leases: the fleet-wide right to run the events of one object. A replica
takes the lease of an object for an event, keeps it while events follow, and
releases it; when the replica dies the lease ends after its TTL, 10 s by default,
and the next event runs elsewhere.`,
		newLeaseList(e), newLeaseInspect(e), newLeaseRelease(e))
}

// leaseJSON is a lease as commands write it. Times are epoch milliseconds by
// the primary's clock.
type leaseJSON struct {
	Class        string `json:"class"`
	ID           string `json:"id"`
	Holder       string `json:"holder"`
	Replica      string `json:"replica,omitempty"`
	Event        string `json:"event,omitempty"`
	RequestID    string `json:"request_id,omitempty"`
	Versionstamp string `json:"versionstamp"`
	AcquiredAt   int64  `json:"acquired_at,omitempty"`
	Wanted       int64  `json:"wanted,omitempty"`
	ExpiresAt    int64  `json:"expires_at"`
	Now          int64  `json:"now"`
	AgeMs        *int64 `json:"age_ms"` // null when an older host wrote the lease
	ExpiresInMs  int64  `json:"expires_in_ms"`
}

func leaseAsJSON(i lease.Info) leaseJSON {
	j := leaseJSON{
		Class: i.Class, ID: i.ID, Holder: i.Holder, Replica: i.Replica, Event: i.Event, RequestID: i.RequestID,
		Versionstamp: i.Stamp.String(), AcquiredAt: i.AcquiredAt, Wanted: i.Wanted, ExpiresAt: i.ExpiresAt,
		Now: i.NowMs, ExpiresInMs: i.ExpiresAt - i.NowMs,
	}
	if i.AcquiredAt > 0 {
		ms := i.NowMs - i.AcquiredAt
		j.AgeMs = &ms
	}
	return j
}

// age is how long ago the lease was taken, or "" when it does not say.
func age(i lease.Info) string {
	if i.AcquiredAt == 0 {
		return ""
	}
	return since(i, i.AcquiredAt)
}

func since(i lease.Info, ms int64) string { return short(time.Duration(i.NowMs-ms) * time.Millisecond) }

// short is how people read a span of time.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second || d <= -time.Second:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// holderName says who holds a lease.
func holderName(i lease.Info) string {
	if i.Replica == "" {
		return "a host that left no replica id"
	}
	return "replica " + i.Replica
}

// meaning explains a lease to somebody who wonders what to do about it.
func meaning(i lease.Info) string {
	who := holderName(i)
	s := fmt.Sprintf("%s has the right to run this object's events", who)
	switch i.Event {
	case lease.EventOperator:
		s = fmt.Sprintf("%s works on this object for an operator", who)
	case "":
	default:
		s = fmt.Sprintf("%s took it for an event (%s), which may still run or be over", who, i.Event)
	}
	s += fmt.Sprintf("; a live holder renews the lease, or it ends by itself in %s", short(i.Remaining()))
	if i.Wanted > 0 {
		s += fmt.Sprintf("; another replica has asked for it %s ago", since(i, i.Wanted))
	}
	return s
}

// showLease adds what a lease says to a table.
func showLease(tb *term.Table, i lease.Info) {
	tb.Row("class", i.Class)
	tb.Row("id", i.ID)
	tb.Row("holder", i.Holder)
	tb.Row("replica", i.Replica)
	tb.Row("event", i.Event)
	if i.RequestID != "" {
		tb.Row("request id", i.RequestID)
	}
	tb.Row("versionstamp", i.Stamp)
	tb.Row("acquired", spaced(instant(i.AcquiredAt), age(i), "ago"))
	tb.Row("expires", spaced(instant(i.ExpiresAt), "in "+short(i.Remaining()), ""))
	if i.Wanted > 0 {
		tb.Row("wanted", spaced(instant(i.Wanted), since(i, i.Wanted), "ago"))
	}
}

// spaced is an instant with how far it is.
func spaced(instant, span, ago string) string {
	if instant == "" {
		return ""
	}
	if ago != "" {
		span += " " + ago
	}
	return instant + " (" + span + ")"
}

// objectFlags name one object: CLASS ID, or CLASS --name NAME.
type objectFlags struct {
	class, id, name string
}

func (o *objectFlags) register(e *env, cmd *cobra.Command) {
	cmd.Args = arguments("CLASS", "[ID]")
	cmd.ValidArgsFunction = e.objects()
	cmd.Flags().StringVar(&o.name, "name", "", "the object with this `NAME`, instead of an ID")
	must(cmd.RegisterFlagCompletionFunc("name", e.objectNames()))
}

func (o *objectFlags) read(cmd *cobra.Command, args []string) error {
	o.class = args[0]
	named := cmd.Flags().Changed("name")
	switch {
	case named && len(args) > 1:
		return usagef("an ID and --name do not go together")
	case named:
		o.id = durable.IDFromName(o.name).String()
		return nil
	case len(args) < 2:
		return usagef("ID is missing; --name NAME stands for it")
	}
	id, err := durable.ParseID(args[1])
	if err != nil {
		return usagef("ID: %w", err)
	}
	o.id = id.String()
	return nil
}

func (o objectFlags) noLease(store string) error {
	return notFoundf("no lease on %s/%s in %s: no replica runs its events at this moment, and the next event takes one", o.class, o.id, store)
}
