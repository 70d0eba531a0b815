package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/term"
)

// The outcomes of a drain.
const (
	drainAsked    = "asked"
	drainFinished = "finished"     // it is gone, and had finished
	drainLeft     = "not finished" // it is gone, and had not finished, or died
	drainLate     = "late"         // it is still there
	drainServes   = "withdrawn"    // it serves on
	drainRefused  = "refused"      // to be withdrawn
)

// drainOutcome is what became of one replica.
type drainOutcome struct {
	ID      string      `json:"id"`
	Outcome string      `json:"outcome"`
	State   fleet.State `json:"state,omitempty"` // the last that was seen
	Detail  string      `json:"detail,omitempty"`
}

func (o *drainOutcome) bad() bool {
	return slices.Contains([]string{drainLeft, drainLate, drainRefused}, o.Outcome)
}

// drained is what drain writes.
type drained struct {
	DryRun   bool            `json:"dry_run"`
	Replicas []*drainOutcome `json:"replicas"`
}

// following is the state of the command.
type following struct {
	*env
	store    *kv.Store
	options  drainOptions
	outcomes map[string]*drainOutcome
	noted    map[string]string // by replica, the last line about it
}

// ask asks all replicas.
func (f *following) ask(ctx context.Context) error {
	asked, err := fleet.RequestDrain(ctx, f.store, f.options.request(), f.options.ids...)
	if err != nil {
		return withHint(err, "whether they were asked is not known; asking again does no harm")
	}
	for _, id := range f.options.ids {
		f.outcomes[id].Outcome = drainAsked
		if !slices.Contains(asked, id) {
			f.outcomes[id].Outcome, f.outcomes[id].Detail = drainFinished, "it was gone before it was asked"
		}
	}
	if f.options.wait {
		return nil
	}
	return f.show()
}

// follow waits until all are gone, or should be.
func (f *following) follow(ctx context.Context, d config.Drain, call, heartbeat time.Duration) error {
	_, limit := f.options.request().Bounds(d.Grace, d.Timeout)
	// A replica that cannot finish takes a little longer to say so, and one that
	// died is registered until its entry expires.
	patience := limit + heartbeat + 2*call
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f.noted = map[string]string{}
	err := again(waiting, f.options.interval, func() (bool, error) { return f.look(waiting) })
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		f.term.Notef("the requests stay; dwk drain --cancel withdraws them")
		return err
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	for _, o := range f.outcomes {
		if o.Outcome == drainAsked {
			o.Outcome, o.Detail = drainLate, "not gone in time"
		}
	}
	return f.end()
}

// look sees how far the replicas are. A store that does not answer is waited for
// like the rest.
func (f *following) look(ctx context.Context) (done bool, err error) {
	found, err := fleet.Drainees(ctx, f.store)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		f.note("store", oneLine(err.Error()))
		return false, nil
	}
	done = true
	for _, id := range f.options.ids {
		o, d := f.outcomes[id], found[id]
		if o.Outcome != drainAsked {
			continue
		}
		switch {
		case d.Live != nil && d.Request != nil:
			done = false
			o.State = d.Live.State
			f.note(id, describe(*d.Live))
		case d.Live != nil && d.Live.State != fleet.Stopping: // somebody else withdrew it
			o.Outcome, o.State, o.Detail = drainLeft, d.Live.State, "the request was withdrawn, it serves on"
		case d.Live != nil: // nothing stops it any more
			done = false
		case d.Request == nil:
			o.Outcome, o.State = drainFinished, ""
		case d.Request.Left != "":
			o.Outcome, o.State, o.Detail = drainLeft, "", d.Request.Left
		default:
			o.Outcome, o.Detail = drainLeft, "it died"
		}
		if o.Outcome != drainAsked {
			f.note(id, strings.TrimSuffix(o.Outcome+": "+o.Detail, ": "))
		}
	}
	return done, nil
}

// note tells what a replica does, when that is new.
func (f *following) note(id, text string) {
	if f.noted[id] != text {
		f.noted[id] = text
		f.term.Notef("%s: %s", id, text)
	}
}

func describe(l fleet.Live) string {
	state := string(l.State)
	if l.Step != "" {
		state += " (" + l.Step + ")"
	}
	return fmt.Sprintf("%s, %s, %s in memory", state, plural(l.InFlight, "request"), plural(l.Objects, "object"))
}

// end shows the outcomes, and fails with the replicas that have not done what they
// should.
func (f *following) end() error {
	if err := f.show(); err != nil {
		return err
	}
	var bad []string
	for _, id := range f.options.ids {
		if o := f.outcomes[id]; o.bad() {
			bad = append(bad, fmt.Sprintf("replica %s: %s", id, strings.TrimSuffix(o.Outcome+": "+o.Detail, ": ")))
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

func (f *following) show() error {
	all := drained{DryRun: f.options.dryRun, Replicas: []*drainOutcome{}}
	tb := term.NewTable("REPLICA", "OUTCOME", "STATE", "DETAIL")
	for _, id := range f.options.ids {
		o := f.outcomes[id]
		all.Replicas = append(all.Replicas, o)
		tone := term.Good
		if o.bad() {
			tone = term.Bad
		}
		tb.Row(o.ID, term.Cell{Text: o.Outcome, Tone: tone}, string(o.State), o.Detail)
	}
	if f.term.JSON {
		return f.term.WriteJSON(all)
	}
	if len(all.Replicas) == 0 {
		f.term.Notef("there is no replica to do it with")
		return nil
	}
	return f.term.Table(tb)
}
