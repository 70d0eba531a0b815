package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/term"
)

// objectJSON is an object of a list.
type objectJSON struct {
	Class     string `json:"class"`
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	TXID      uint64 `json:"txid"`
	PageSize  uint32 `json:"page_size"`
	Pages     uint32 `json:"pages"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	UpdatedAt int64  `json:"updated_at"`
	DeletedAt *int64 `json:"deleted_at"`
	AgeMs     int64  `json:"age_ms"`
}

type objectListOptions struct {
	objectops.ListOptions
	class string
	all   bool
}

func newObjectList(e *env) *cobra.Command {
	o := objectListOptions{ListOptions: objectops.ListOptions{Limit: defaultListLimit}}
	cmd := &cobra.Command{
		Use:   "list CLASS",
		Short: "List the objects of a class",
		Long: `List the objects of a class in the order of their ids: name, last commit, size of
the database, when it was last changed and how long ago it came to be, by the
primary's clock. Deleted objects are left out; --deleted lists those that still
have a tombstone, for a day.`,
		Example: `  dwk object list Counter
  dwk object list Counter --all -o json
  dwk object list Counter --after 0a --limit 100`,
		Args:              arguments("CLASS"),
		ValidArgsFunction: e.classes(false),
	}
	f := cmd.Flags()
	f.IntVar(&o.Limit, "limit", defaultListLimit, "at most `N` objects")
	f.StringVar(&o.After, "after", "", "only objects behind this `ID`")
	f.BoolVar(&o.all, "all", false, "all of them")
	f.BoolVar(&o.Deleted, "deleted", false, "deleted objects instead")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		o.class = args[0]
		if err := exclusive(cmd, "all", "limit"); err != nil {
			return err
		}
		if o.Limit < 1 {
			return usagef("--limit must be at least 1; --all is all")
		}
		if o.After != "" {
			if _, err := durable.ParseID(o.After); err != nil {
				return usagef("--after: %w", err)
			}
		}
		return runObjectList(ctx, e, o)
	})
	return cmd
}

func runObjectList(ctx context.Context, e *env, o objectListOptions) error {
	bound, limit := e.bound, o.Limit
	o.Limit++ // tells whether there are more
	if o.all {
		bound, limit, o.Limit = e.boundIfAsked, 0, 0
	}
	ctx, cancel := bound(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	out := e.term.Array()
	tb := term.NewTable("ID", "NAME", "COMMIT", "BYTES", "UPDATED", "AGE")
	if o.Deleted {
		tb = term.NewTable("ID", "NAME", "COMMIT", "BYTES", "DELETED", "AGE")
	}
	n := 0
	last := ""
	for obj, err := range s.List(ctx, o.class, o.ListOptions) {
		if err != nil {
			return err
		}
		if n++; limit > 0 && n > limit {
			e.term.Notef("there are more objects than %d: go on with --after %s", limit, last)
			break
		}
		last = obj.ID
		if !e.term.JSON {
			tb.Row(obj.ID, term.Cut(obj.Name, tableValue), int64(obj.TXID), obj.Bytes(), instant(max(obj.UpdatedAt, obj.DeletedAt)), ageOf(obj.NowMs, obj.CreatedAt))
			continue
		}
		if err := out.Add(objectJSON{
			o.class, obj.ID, obj.Name, obj.TXID, obj.PageSize, obj.Pages, obj.Bytes(), obj.CreatedAt, obj.UpdatedAt, optional(obj.DeletedAt), obj.NowMs - obj.CreatedAt,
		}); err != nil {
			return err
		}
	}
	if e.term.JSON {
		return out.Close()
	}
	return e.term.Table(tb)
}

// classJSON is a class of a list.
type classJSON struct {
	Class   string `json:"class"`
	Objects int64  `json:"objects"`
	Deleted int64  `json:"deleted"`
	Bytes   int64  `json:"bytes"`
}

func newObjectClasses(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "Count the objects of each class",
		Long: `Count the objects of each class that has any, and add up the sizes of their
databases. It reads the heads of all objects.`,
		Example: `  dwk object classes`,
		Args:    arguments(),
	}
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error { return runObjectClasses(ctx, e) })
	return cmd
}

func runObjectClasses(ctx context.Context, e *env) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.openObjects(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	classes, err := s.Classes(ctx)
	if err != nil {
		return err
	}
	out := e.term.Array()
	tb := term.NewTable("CLASS", "OBJECTS", "DELETED", "BYTES")
	for _, c := range classes {
		tb.Row(c.Name, c.Objects, c.Deleted, c.Bytes)
		if e.term.JSON {
			if err := out.Add(classJSON{c.Name, c.Objects, c.Deleted, c.Bytes}); err != nil {
				return err
			}
		}
	}
	if e.term.JSON {
		return out.Close()
	}
	return e.term.Table(tb)
}
