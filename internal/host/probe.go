package host

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/probe"
)

// probe runs the checks of the stores before the replica serves.
func (r *replica) probe(ctx context.Context) error {
	results, err := probe.Run(ctx, probe.Target{
		DB: r.stores.DB, KV: r.stores.KV, Databases: r.databases.Targets(r.cfg), Buckets: r.buckets.Targets(r.cfg),
	}, probe.Options{Quick: true})
	if err != nil {
		return fmt.Errorf("probe the stores: %w", err)
	}
	for _, res := range results {
		if res.Warn {
			r.log.LogAttrs(ctx, slog.LevelWarn, event.ProbeWarned, slog.String("store", res.Store), slog.String("note", res.Note))
		}
	}
	return probe.Summarize(results)
}
