package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/objectops"
)

const (
	// completionTimeout bounds how long a shell waits for the stores.
	completionTimeout = time.Second
	// completedObjects bounds the objects that are offered, or looked through for
	// their names.
	completedObjects = 1000
)

// fixed completes from a list.
func fixed(names ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
}

// completion completes with what the configuration and the stores have. The
// stores are nil when they cannot be opened soon.
func (e *env) completion(find func(ctx context.Context, cfg *config.Config, s *host.Stores, args []string, begun string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		cfg, err := e.load(nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		s, err := host.OpenExisting(ctx, cfg)
		if err != nil {
			s = nil
		} else {
			defer s.Close()
		}
		return find(ctx, cfg, s, args, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// first completes the first argument only.
func first(find cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return find(cmd, args, begun)
	}
}

// classes completes the first argument, or a flag's, with the classes of the
// applications in this program.
func (e *env) classes(flag bool) cobra.CompletionFunc {
	var names []string
	for _, app := range e.opts.Apps {
		names = append(names, slices.Sorted(maps.Keys(app.Classes))...)
	}
	if flag {
		return fixed(names...)
	}
	return first(fixed(names...))
}

// objects completes CLASS and ID, each id with the object's name.
func (e *env) objects() cobra.CompletionFunc {
	classes := e.classes(false)
	ids := e.completion(func(ctx context.Context, _ *config.Config, s *host.Stores, args []string, begun string) (ids []string) {
		for o := range someObjects(ctx, s, args[0], begun) {
			ids = append(ids, cobra.CompletionWithDesc(o.ID, o.Name))
		}
		return ids
	})
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return classes(cmd, args, begun)
		case len(args) == 1 && !cmd.Flags().Changed("name"):
			return ids(cmd, args, begun)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// objectNames completes --name with the names of objects of the class.
func (e *env) objectNames() cobra.CompletionFunc {
	return e.completion(func(ctx context.Context, _ *config.Config, s *host.Stores, args []string, begun string) (names []string) {
		if len(args) == 0 {
			return nil
		}
		for o := range someObjects(ctx, s, args[0], "") {
			if o.Name != "" && strings.HasPrefix(o.Name, begun) {
				names = append(names, o.Name)
			}
		}
		return names
	})
}

// someObjects are objects of a class whose ids begin so, as many as can be had.
func someObjects(ctx context.Context, s *host.Stores, class, begun string) func(yield func(objectops.Object) bool) {
	return func(yield func(objectops.Object) bool) {
		if s == nil {
			return
		}
		list := objectops.New(objectops.Config{Store: s.KV}).List(ctx, class, objectops.ListOptions{Prefix: begun, Limit: completedObjects})
		for o, err := range list {
			if err != nil || !yield(o) {
				return
			}
		}
	}
}

// replicas completes with the replicas that are registered and not given yet.
func (e *env) replicas() cobra.CompletionFunc {
	return e.completion(func(ctx context.Context, _ *config.Config, s *host.Stores, args []string, _ string) []string {
		if s == nil {
			return nil
		}
		return replicaNames(ctx, s.KV, args)
	})
}

// versions completes with those of the registered replicas.
func (e *env) versions() cobra.CompletionFunc {
	return e.completion(func(ctx context.Context, _ *config.Config, s *host.Stores, _ []string, _ string) (list []string) {
		if s == nil {
			return nil
		}
		found, _ := fleet.Drainees(ctx, s.KV) // what can be had
		for _, d := range found {
			if d.Live != nil {
				list = append(list, d.Live.Version)
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	})
}

// must is for errors that only a mistake in this package makes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
