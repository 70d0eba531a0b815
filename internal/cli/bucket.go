package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

func newBucket(e *env) *cobra.Command {
	return group("bucket", "Buckets of applications", `Look into the buckets that applications use, and change them. BINDING is a name of
the list buckets of the configuration; commands need no replica.`,
		newBucketList(e), newBucketHead(e), newBucketGet(e), newBucketPut(e), newBucketDelete(e))
}

// openBucket opens a bucket binding.
func (e *env) openBucket(name string) (*host.Bucket, error) {
	cfg, err := e.load(nil)
	if err != nil {
		return nil, err
	}
	url, ok := cfg.BucketURL(name)
	if !ok {
		var names []string
		for _, b := range cfg.Buckets {
			names = append(names, b.Name)
		}
		return nil, notFoundf("there is no bucket %q in the configuration, only: %s", name, strings.Join(names, ", "))
	}
	e.term.Detailf("bucket %s: %s", name, url)
	return host.OpenBucket(cfg, name)
}

// noKey makes an error of a missing key one that says so.
func noKey(err error, binding, key string) error {
	if errors.Is(err, durable.ErrNotFound) {
		return notFoundf("no key %q in bucket %s", key, binding)
	}
	return err
}

// bodyJSON is a stored body as commands write it.
type bodyJSON struct {
	Key         string            `json:"key"`
	Size        int64             `json:"size"`
	ETag        string            `json:"etag"`
	Uploaded    *time.Time        `json:"uploaded,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func newBodyJSON(o durable.ObjectInfo) bodyJSON {
	out := bodyJSON{Key: o.Key, Size: o.Size, ETag: o.ETag, ContentType: o.ContentType, Metadata: o.Metadata}
	if !o.Uploaded.IsZero() {
		out.Uploaded = &o.Uploaded
	}
	return out
}

func showBody(t *term.Term, o durable.ObjectInfo) error {
	if t.JSON {
		return t.WriteJSON(newBodyJSON(o))
	}
	tb := term.NewTable()
	tb.Row("key", o.Key)
	tb.Row("size", o.Size)
	tb.Row("etag", o.ETag)
	if !o.Uploaded.IsZero() {
		tb.Row("uploaded", instant(o.Uploaded.UnixMilli()))
	}
	tb.Row("type", o.ContentType)
	for _, name := range slices.Sorted(maps.Keys(o.Metadata)) {
		tb.Row("meta "+name, term.Cut(o.Metadata[name], tableValue))
	}
	return t.Table(tb)
}

type bucketListOptions struct {
	binding string
	durable.ListOptions
}

func newBucketList(e *env) *cobra.Command {
	var o bucketListOptions
	cmd := &cobra.Command{
		Use:   "list BINDING [PREFIX]",
		Short: "List keys in the order of their bytes",
		Long: `List the keys that begin with PREFIX. With --delimiter / those below a further slash
are listed once, as the prefix that they have in common.`,
		Example: `  dwk bucket list LAB_FILES
  dwk bucket list LAB_FILES photos/ --delimiter / -o json`,
		Args:              arguments("BINDING", "[PREFIX]"),
		ValidArgsFunction: e.bindings("buckets"),
	}
	cmd.Flags().StringVar(&o.Delimiter, "delimiter", "", "list what has `TEXT` after the prefix once")
	cmd.Flags().IntVar(&o.Limit, "limit", defaultListLimit, "at most `N` keys and prefixes; 0 is all")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if o.Limit < 0 {
			return usagef("--limit must not be negative")
		}
		if o.binding = args[0]; len(args) > 1 {
			o.Prefix = args[1]
		}
		return runBucketList(ctx, e, o)
	})
	return cmd
}

func runBucketList(ctx context.Context, e *env, o bucketListOptions) error {
	bound := e.bound
	if o.Limit == 0 {
		bound = e.boundIfAsked
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	b, err := e.openBucket(o.binding)
	if err != nil {
		return err
	}
	defer b.Close()
	var array *term.Array
	if e.term.JSON {
		array = e.term.Array()
	}
	tb := term.NewTable("KEY", "SIZE", "UPLOADED")
	limit := o.Limit
	for n := 0; ; {
		if limit > 0 {
			o.Limit = min(limit-n, 1000)
		}
		page, err := b.List(ctx, o.ListOptions)
		if err != nil {
			return err
		}
		n += len(page.Objects) + len(page.Prefixes)
		if err := addPage(array, tb, page); err != nil {
			return err
		}
		if o.Cursor = page.Cursor; o.Cursor == "" {
			break
		}
		if limit > 0 && n >= limit {
			e.term.Notef("there are more keys than %d: see --limit", limit)
			break
		}
	}
	if array != nil {
		return array.Close()
	}
	return e.term.Table(tb)
}

// addPage adds the keys and prefixes of a page in their common order.
func addPage(array *term.Array, tb *term.Table, page durable.Listing) error {
	type prefixJSON struct {
		Prefix string `json:"prefix"`
	}
	prefixes := page.Prefixes
	before := func(key string) error {
		for len(prefixes) > 0 && (key == "" || prefixes[0] < key) {
			if array == nil {
				tb.Row(prefixes[0], "", "")
			} else if err := array.Add(prefixJSON{prefixes[0]}); err != nil {
				return err
			}
			prefixes = prefixes[1:]
		}
		return nil
	}
	for _, o := range page.Objects {
		if err := before(o.Key); err != nil {
			return err
		}
		if array == nil {
			tb.Row(o.Key, o.Size, instant(o.Uploaded.UnixMilli()))
		} else if err := array.Add(newBodyJSON(o)); err != nil {
			return err
		}
	}
	return before("")
}

func newBucketHead(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "head BINDING KEY",
		Short:             "Show what is known about a body",
		Long:              `Show size, ETag, time, content type and metadata of a key. Exits 3 when there is none.`,
		Example:           `  dwk bucket head LAB_FILES photos/1.jpg`,
		Args:              arguments("BINDING", "KEY"),
		ValidArgsFunction: e.bindings("buckets"),
		RunE: e.run(func(ctx context.Context, args []string) error {
			ctx, cancel := e.bound(ctx)
			defer cancel()
			b, err := e.openBucket(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			o, err := b.Head(ctx, args[1])
			if err != nil {
				return noKey(err, args[0], args[1])
			}
			return showBody(e.term, o)
		}),
	}
}

type bucketDeleteOptions struct {
	binding     string
	keys        []string
	prefix      string
	dryRun, yes bool
}

func newBucketDelete(e *env) *cobra.Command {
	var o bucketDeleteOptions
	cmd := &cobra.Command{
		Use:   "delete BINDING [KEY...]",
		Short: "Remove keys",
		Long: `Remove the given keys, or all that begin with --prefix. A key that is not there is no
error. Exits 4 when some were removed and one could not be.`,
		Example: `  dwk bucket delete LAB_FILES photos/1.jpg --yes
  dwk bucket delete LAB_FILES --prefix photos/ --dry-run`,
		Args:              arguments("BINDING", "[KEY...]"),
		ValidArgsFunction: e.bindings("buckets"),
	}
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "remove all keys that begin with `TEXT`")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be removed")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.binding, o.keys = args[0], args[1:]
		if (o.prefix == "") == (len(o.keys) == 0) {
			return usagef("want keys, or --prefix")
		}
		return runBucketDelete(ctx, e, o)
	})
	return cmd
}

func runBucketDelete(ctx context.Context, e *env, o bucketDeleteOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	b, err := e.openBucket(o.binding)
	if err != nil {
		return err
	}
	defer b.Close()
	for opts := (durable.ListOptions{Prefix: o.prefix}); o.prefix != ""; {
		page, err := b.List(ctx, opts)
		if err != nil {
			return err
		}
		for _, info := range page.Objects {
			o.keys = append(o.keys, info.Key)
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			break
		}
	}
	if !o.dryRun && len(o.keys) > 0 {
		if err := e.confirm(ctx, o.yes, "Remove %s from bucket %s?", plural(len(o.keys), "key"), o.binding); err != nil {
			return err
		}
		for i, key := range o.keys {
			if err := b.Delete(ctx, key); err != nil {
				if i > 0 {
					return partlyError{plural(i, "key") + " removed", err}
				}
				return err
			}
		}
	}
	if e.term.JSON {
		return e.term.WriteJSON(struct {
			Keys    []string `json:"keys"`
			Removed bool     `json:"removed"`
		}{append([]string{}, o.keys...), !o.dryRun})
	}
	for _, key := range o.keys {
		if _, err := fmt.Fprintln(e.term.Out, term.Clean(key)); err != nil {
			return err
		}
	}
	return nil
}
