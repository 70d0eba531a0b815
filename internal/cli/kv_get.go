package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/term"
)

func newKVGet(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "get KEY",
		Short:   "Show one entry",
		Long:    "Show one entry: its value, its versionstamp, and when it expires. Exits 3 when there is none; an expired entry counts as none.",
		Example: `  dwk kv get '["dwk_meta","mode"]'`,
		Args:    arguments("KEY"),
		RunE: e.run(func(ctx context.Context, args []string) error {
			key, err := parseKey("KEY", args[0])
			if err != nil {
				return err
			}
			return runKVGet(ctx, e, key)
		}),
	}
}

func runKVGet(ctx context.Context, e *env, key tuple.Key) error {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	entry, ok, err := s.KV.Get(ctx, key)
	if err != nil {
		return err
	}
	if !ok {
		return withHint(notFoundf("no entry %s in %s", key, s.DB), "see what there is with: dwk kv list")
	}
	return showEntry(e.term, entry)
}

func showEntry(t *term.Term, entry kv.Entry) error {
	if t.JSON {
		j, err := asJSON(entry)
		if err != nil {
			return err
		}
		return t.WriteJSON(j)
	}
	tb := term.NewTable()
	tb.Row("key", entry.Key)
	tb.Row("value", string(entry.Value))
	tb.Row("versionstamp", entry.Stamp)
	tb.Row("expires", expiry(entry.ExpiresAt))
	return t.Table(tb)
}
