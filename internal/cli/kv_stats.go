package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/term"
)

// prefixStat sums up the rows whose keys begin with one text.
type prefixStat struct {
	Prefix string `json:"prefix"`
	// Rows and Bytes include what has expired; Expired counts those rows.
	Rows    int64 `json:"rows"`
	Bytes   int64 `json:"bytes"`
	Expired int64 `json:"expired"`
}

func newKVStats(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count rows, bytes and expired rows by key prefix",
		Long: `Count rows, bytes of keys and values, and rows that have expired and await a
sweep, by the first element of the keys. Keys that do not begin with a text are
counted as (other). It reads the whole store.`,
		Example: `  dwk kv stats`,
		Args:    arguments(),
		RunE:    e.run(func(ctx context.Context, _ []string) error { return runKVStats(ctx, e) }),
	}
}

func runKVStats(ctx context.Context, e *env) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	stats, err := s.KV.Stats(ctx)
	if err != nil {
		return err
	}
	array, tb, total := e.term.Array(), term.NewTable("PREFIX", "ROWS", "BYTES", "EXPIRED"), prefixStat{Prefix: "total"}
	for _, st := range stats {
		p := prefixStat{st.Prefix, st.Rows, st.Bytes, st.Expired}
		if e.term.JSON {
			if err := array.Add(p); err != nil {
				return err
			}
			continue
		}
		tb.Row(p.Prefix, p.Rows, p.Bytes, p.Expired)
		total.Rows, total.Bytes, total.Expired = total.Rows+p.Rows, total.Bytes+p.Bytes, total.Expired+p.Expired
	}
	if e.term.JSON {
		return array.Close()
	}
	tb.Row(term.Cell{Text: total.Prefix, Tone: term.Dim}, total.Rows, total.Bytes, total.Expired)
	return e.term.Table(tb)
}
