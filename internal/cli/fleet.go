package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/term"
)

func newFleet(e *env) *cobra.Command {
	return group("fleet", "The replicas, and the store set as a whole", `Look at the fleet: all replicas that share this store set, what they hold and what
waits for them. Replicas register themselves and are gone from the list
fleet.heartbeat_ttl (15 s) after they died.`,
		newFleetStatus(e), newFleetWait(e), newFleetAdopt(e), newFleetFence(e))
}

// again calls look every interval until it is done, fails, or ctx ends. What a
// look itself fails with is its caller's affair.
func again(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// minInterval bounds how often a command looks at the stores.
const minInterval = 10 * time.Millisecond

// replicaTable lists replicas for people.
func replicaTable(st fleet.Status) *term.Table {
	tb := term.NewTable("REPLICA", "STATE", "VERSION", "HOST", "PUBLIC", "UPTIME", "REQUESTS", "OBJECTS", "SOCKETS", "HEARTBEAT", "EXPIRES IN")
	for _, r := range st.Replicas {
		tone := term.Warn
		if r.State == fleet.Ready {
			tone = term.Good
		}
		heartbeat := ""
		if r.HeartbeatAt > 0 {
			heartbeat = ageOf(st.NowMs, r.HeartbeatAt) + " ago"
		}
		tb.Row(r.ID, term.Cell{Text: string(r.State), Tone: tone}, r.Version, r.Host, r.Public, ageOf(st.NowMs, r.StartedAt),
			r.InFlight, r.Objects, r.Sockets, heartbeat, ageOf(r.ExpiresAt, st.NowMs))
	}
	return tb
}
