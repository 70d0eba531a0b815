package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/term"
)

// A kind is one of things that have names and can be paused: queues, schedules.
// What is neither configured nor stored does not exist, so that a wrong name is
// noticed.
type kind struct {
	// noun is what it is called, and command what lists them.
	noun, command string
	configured    func(*config.Config) []string
	stored        func(context.Context, *kv.Store) ([]string, error)
}

// names are all there are, sorted.
func (k kind) names(ctx context.Context, s *host.Stores) ([]string, error) {
	names, err := k.stored(ctx, s.KV)
	if err != nil {
		return nil, err
	}
	names = append(names, k.configured(s.Config)...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// knows reports whether there is one with the name.
func (k kind) knows(ctx context.Context, s *host.Stores, name string) (bool, error) {
	if slices.Contains(k.configured(s.Config), name) {
		return true, nil
	}
	names, err := k.stored(ctx, s.KV)
	return slices.Contains(names, name), err
}

// complete completes the first argument with the names.
func (k kind) complete(e *env) cobra.CompletionFunc {
	return first(e.completion(func(ctx context.Context, cfg *config.Config, s *host.Stores, _ []string, _ string) []string {
		if s != nil {
			if names, err := k.names(ctx, s); err == nil {
				return names
			}
		}
		return k.configured(cfg)
	}))
}

// lookAt opens the stores and looks at the one with the name.
func lookAt[T any](ctx context.Context, e *env, k kind, name string, inspect func(context.Context, *host.Stores) (T, error)) (s *host.Stores, seen T, err error) {
	if s, err = e.open(ctx); err != nil {
		return nil, seen, err
	}
	ok, err := k.knows(ctx, s, name)
	if err == nil && !ok {
		err = withHint(notFoundf("no %s %q is configured, and nothing of one is in %s", k.noun, name, s.DB), "see: dwk %s list", k.command)
	}
	if err == nil {
		seen, err = inspect(ctx, s)
	}
	if err != nil {
		s.Close()
		return nil, seen, err
	}
	return s, seen, nil
}

// pausedJSON is what pause and resume write: the name of one of the two.
type pausedJSON struct {
	Queue    string `json:"queue,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	Paused   bool   `json:"paused"`
	Changed  bool   `json:"changed"`
}

// A pausing is a pause or its end. It changes what is not so already, and reports
// whether it was it that did.
type pausing struct {
	kind     kind
	name     string
	paused   bool // what it is to be
	question string
	change   func(context.Context, *host.Stores) (bool, error)
}

func (p pausing) run(ctx context.Context, e *env, s *host.Stores, before, yes bool) error {
	changed := before != p.paused
	if changed {
		if err := e.confirm(ctx, yes, "%s", p.question); err != nil {
			return err
		}
		call, cancel := e.bound(ctx)
		defer cancel()
		var err error
		if changed, err = p.change(call, s); err != nil {
			return err
		}
	}
	if e.term.JSON {
		j := pausedJSON{Paused: p.paused, Changed: changed}
		if p.kind.noun == queueKind.noun {
			j.Queue = p.name
		} else {
			j.Schedule = p.name
		}
		return e.term.WriteJSON(j)
	}
	tb := term.NewTable()
	tb.Row(p.kind.noun, p.name)
	tb.Row("paused", map[[2]bool]string{
		{true, true}: "yes, from now on", {true, false}: "yes, it was before", {false, true}: "no more", {false, false}: "no, it was not",
	}[[2]bool{p.paused, changed}])
	return e.term.Table(tb)
}
