package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/term"
)

// moveStatusJSON is what migrate status writes.
type moveStatusJSON struct {
	Mode string `json:"mode"`
	// Moving is the id of the move that the store set is marked with.
	Moving string         `json:"moving,omitempty"`
	Moves  []migrate.Move `json:"moves"`
}

func newMigrateStatus(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what the journal says of moves into this store set",
		Long: `Show the moves into this store set that its journal knows, how far each has come, and
whether the store set is marked as being migrated. A mark without a run is that of
one that was interrupted: repeat it to go on, or see dwk migrate abandon.`,
		Example: `  dwk migrate status
  dwk migrate status -o json | jq .moves[].state`,
		Args: arguments(),
		RunE: e.run(func(ctx context.Context, _ []string) error {
			ctx, cancel := e.bound(ctx)
			defer cancel()
			s, err := e.open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			marker, _, err := mode.Read(ctx, s.KV)
			if err != nil {
				return err
			}
			moves, err := migrate.Moves(ctx, s.KV)
			if err != nil {
				return err
			}
			j := moveStatusJSON{Mode: marker, Moves: append([]migrate.Move{}, moves...)}
			j.Moving, _ = mode.MoveOf(marker)
			return showMoves(e.term, j)
		}),
	}
}

func showMoves(t *term.Term, j moveStatusJSON) error {
	if t.JSON {
		return t.WriteJSON(j)
	}
	tb := term.NewTable("FROM", "STATE", "BEGUN", "ENDED", "SQL", "OBJECTS", "BODIES", "NOT MOVED")
	for _, m := range j.Moves {
		ended := ""
		if m.EndedAt > 0 {
			ended = instant(m.EndedAt)
		}
		state := m.State
		if m.State == migrate.Running && m.ID != j.Moving {
			state = "interrupted"
		}
		tb.Row(m.Host+":"+m.Path, state, instant(m.StartedAt), ended,
			statesText(m.States[migrate.SQL]), statesText(m.States[migrate.Objects]), statesText(m.States[migrate.Buckets]), m.Failed)
	}
	if err := t.Table(tb); err != nil {
		return err
	}
	if j.Moving != "" {
		t.Notef("the store set is marked as being migrated (%s): no replica serves it", j.Mode)
	}
	return nil
}

func statesText(states map[string]int64) string {
	var verified, others int64
	for s, n := range states {
		if s == "verified" {
			verified += n
		} else {
			others += n
		}
	}
	if others == 0 {
		return fmt.Sprint(verified)
	}
	return fmt.Sprintf("%d, %d not fully verified", verified, others)
}

func newMigrateAbandon(e *env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "abandon",
		Short: "Let replicas serve a store set whose migration was interrupted",
		Long: `Take the mark of a migration away that was interrupted and is not to be gone on with.
Nothing else changes: what has moved stays where it is, and replicas serve what is
there. Make sure that no migration runs: this does not stop it.`,
		Example: `  dwk migrate abandon --yes`,
		Args:    arguments(),
	}
	yesFlag(cmd, &yes)
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		call, cancel := e.bound(ctx)
		defer cancel()
		s, err := e.open(call)
		if err != nil {
			return err
		}
		defer s.Close()
		marker, _, err := mode.Read(call, s.KV)
		if err != nil {
			return err
		}
		id, ok := mode.MoveOf(marker)
		if !ok {
			return notFoundf("the store set is not marked as being migrated: its mode is %q", marker)
		}
		if err := e.confirm(ctx, yes, "Take the mark %s away and let replicas serve what is there?", marker); err != nil {
			return err
		}
		call, cancel = e.bound(ctx)
		defer cancel()
		if err := fleet.EndMove(call, s.KV, id); err != nil {
			return err
		}
		if e.term.JSON {
			return e.term.WriteJSON(struct {
				Mode   string `json:"mode"`
				Before string `json:"before"`
			}{mode.Marker, marker})
		}
		tb := term.NewTable()
		tb.Row("mode", mode.Marker+", it was "+marker)
		return e.term.Table(tb)
	})
	return cmd
}
