package host

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/server"
)

// An ending is why and how a replica stops.
type ending struct {
	by     string // who or what wants it
	err    error  // nil when somebody asked for it
	failed bool   // a listener
	// asked says that it was asked for through the store, and may be withdrawn.
	asked bool
	// began is when the grace and the timeout begin to count.
	began          time.Time
	grace, timeout time.Duration
}

// left is how much of the timeout is left.
func (e ending) left() time.Duration { return e.timeout - clock.Since(e.began) }

// now is an ending that begins now, as configured.
func (r *replica) now(e ending) ending {
	e.began, e.grace, e.timeout = clock.Now(), r.cfg.Drain.Grace, r.cfg.Drain.Timeout
	return e
}

// end has the replica stop, for good. Only the first reason counts.
func (r *replica) end(e ending) {
	select {
	case r.ends <- e:
	default:
	}
}

// ask has the replica stop as a request says, or not any more when it is nil.
// The last word counts. Only the polling goroutine calls it.
func (r *replica) ask(d *fleet.DrainRequest) {
	if d != nil {
		r.log.Info(event.DrainRequested, "by", d.By)
	}
	select {
	case <-r.asks:
	default:
	}
	r.asks <- d
}

// wait waits for a reason to stop.
func (r *replica) wait(ctx context.Context, failed <-chan error) ending {
	for {
		select {
		case <-ctx.Done():
			return r.now(ending{by: context.Cause(ctx).Error()})
		case e := <-r.ends:
			return r.now(e)
		case err := <-failed:
			return r.now(ending{by: "a listener", err: err, failed: true})
		case d := <-r.asks:
			if d != nil {
				return r.asked(d, clock.Now())
			}
		}
	}
}

// asked is the ending that a request asks for.
func (r *replica) asked(d *fleet.DrainRequest, began time.Time) ending {
	e := ending{by: d.By, asked: true, began: began}
	e.grace, e.timeout = d.Bounds(r.cfg.Drain.Grace, r.cfg.Drain.Timeout)
	return e
}

// grace goes on serving, for load balancers to notice. Meanwhile a request may be
// withdrawn or replaced by another one, and nothing withdraws a signal, which
// makes the grace no longer. It returns the ending that counts now.
func (r *replica) grace(ctx context.Context, e ending) (ending, error) {
	for {
		timer := time.NewTimer(e.grace - clock.Since(e.began))
		if !e.asked {
			<-timer.C
			return e, nil
		}
		select {
		case <-timer.C:
			return e, nil
		case <-ctx.Done():
			e = e.sooner(r.now(ending{by: context.Cause(ctx).Error()}))
		case next := <-r.ends:
			e = e.sooner(r.now(next))
		case d := <-r.asks:
			if d == nil {
				timer.Stop()
				return e, fleet.ErrWithdrawn
			}
			e = r.asked(d, e.began)
		}
		timer.Stop()
	}
}

// sooner is the next ending, with a grace that is over no later than this one's.
func (e ending) sooner(next ending) ending {
	next.grace = max(min(next.grace, e.grace-clock.Since(e.began)), 0)
	return next
}

// serveDrain is /drain on the admin listener.
func (r *replica) serveDrain(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "POST has the replica stop in order", http.StatusMethodNotAllowed)
		return
	}
	r.end(ending{by: "POST /drain"})
	state := r.ready.State()
	if state == server.StateReady {
		state = server.StateDraining
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusAccepted)
	json.NewEncoder(w).Encode(map[string]string{"status": string(state), "replica": r.id}) //nolint:errcheck // the client is gone
}
