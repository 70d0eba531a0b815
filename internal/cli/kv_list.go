package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/term"
)

const (
	defaultListLimit = 1000
	// tableValue bounds what a table shows of a value, in characters.
	tableValue = 100
)

func newKVList(e *env) *cobra.Command {
	var prefix, start, end string
	o := kv.ListOptions{Limit: defaultListLimit}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List entries in the order of their keys",
		Long: `List live entries in the order of their keys. A prefix covers the keys that
extend it element by element: ["a"] covers ["a","b"] and not ["ab"]. The table
cuts long values short; -o json shows all of them.`,
		Example: `  dwk kv list --prefix '["dwk_lease"]'
  dwk kv list --start '["a"]' --end '["b"]' --limit 0 -o json`,
		Args: arguments(),
	}
	f := cmd.Flags()
	f.StringVar(&prefix, "prefix", "", "only keys that extend this `KEY`")
	f.StringVar(&start, "start", "", "only keys from this `KEY` on")
	f.StringVar(&end, "end", "", "only keys before this `KEY`")
	f.IntVar(&o.Limit, "limit", defaultListLimit, "at most `N` entries; 0 is all")
	f.BoolVar(&o.Reverse, "reverse", false, "from the last key to the first")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		for _, k := range []struct {
			flag, text string
			key        *tuple.Key
		}{{"prefix", prefix, &o.Prefix}, {"start", start, &o.Start}, {"end", end, &o.End}} {
			if !f.Changed(k.flag) {
				continue
			}
			key, err := parseKey("--"+k.flag, k.text)
			if err != nil {
				return err
			}
			*k.key = key
		}
		if o.Limit < 0 {
			return usagef("--limit must not be negative")
		}
		return runKVList(ctx, e, o)
	})
	return cmd
}

func runKVList(ctx context.Context, e *env, o kv.ListOptions) error {
	bound := e.bound
	if o.Limit == 0 {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	limit := o.Limit
	if limit > 0 {
		o.Limit++ // tells whether there are more
	}
	more, err := listEntries(ctx, e.term, s, o, limit)
	if err != nil {
		return err
	}
	if more {
		e.term.Notef("there are more entries than %d: see --limit", limit)
	}
	return nil
}

// listEntries writes at most limit entries and reports whether there are more.
func listEntries(ctx context.Context, t *term.Term, s *host.Stores, o kv.ListOptions, limit int) (more bool, err error) {
	n := 0
	var array *term.Array
	tb := term.NewTable("KEY", "VALUE", "VERSIONSTAMP", "EXPIRES")
	for entry, err := range s.KV.List(ctx, o) {
		if err != nil {
			return false, err
		}
		if limit > 0 && n == limit {
			more = true
			break
		}
		n++
		if !t.JSON {
			tb.Row(entry.Key, term.Cut(string(entry.Value), tableValue), entry.Stamp, expiry(entry.ExpiresAt))
			continue
		}
		if array == nil { // so that a store that cannot be read is no beginning of a list
			array = t.Array()
		}
		j, err := asJSON(entry)
		if err != nil {
			return false, err
		}
		if err := array.Add(j); err != nil {
			return false, err
		}
	}
	switch {
	case !t.JSON:
		return more, t.Table(tb)
	case array == nil:
		array = t.Array()
	}
	return more, array.Close()
}
