// Package mode guards what a store set may be used for: the marker that says
// how it is written, the id that tells it from others, and data directories
// that still hold the stores of the single-process local mode.
package mode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

const (
	// Marker is the mode that this program writes: fleet mode, second layout.
	Marker = "central/2"
	// OlderHost is the marker of an older host, which fences nothing.
	OlderHost = "central"
	// migrating begins the marker for the time of a move.
	migrating = "migrating:"
	// Layout is the version of the stored formats.
	Layout = 1
)

// The keys.
var (
	ModeKey  = tuple.Key{"dwk_meta", "mode"}
	StoreKey = tuple.Key{"dwk_meta", "store"}
)

// Moving is the marker for the time of the move with this id, a UUID.
func Moving(id string) string { return migrating + id }

// Serving is the condition, within a transaction, that a store set is in the mode
// in which this program writes it, with its arguments.
func Serving() (cond string, args []any) {
	return `EXISTS (SELECT 1 FROM kv WHERE k = ? AND v = ?)`, []any{tuple.MustEncode(ModeKey...), `"` + Marker + `"`}
}

// MoveOf returns the id of the move that a marker tells of; ok is false for any
// other marker.
func MoveOf(marker string) (id string, ok bool) {
	if id, ok = strings.CutPrefix(marker, migrating); !ok {
		return "", false
	}
	return id, true
}

// ErrRefused is part of every error about a store set or directory that this
// program must not use as it is.
var ErrRefused = errors.New("refused")

// Store identifies a store set.
type Store struct {
	ID        string `json:"store_id"`
	Layout    int    `json:"layout"`
	CreatedAt int64  `json:"created_at"`
}

// Read returns the marker and the identity of a store set; both are empty for
// a new one. It does not judge them.
func Read(ctx context.Context, s *kv.Store) (marker string, id Store, err error) {
	res, err := s.Decide(ctx, Statement())
	if err != nil {
		return "", Store{}, fmt.Errorf("read the mode of the store set: %w", err)
	}
	return Parse(res[0])
}

// Statement reads the marker and the identity, for [Parse].
func Statement() libsql.Statement {
	return libsql.S(`SELECT k, v FROM kv WHERE k IN (?, ?) AND `+kv.Live, tuple.MustEncode(ModeKey...), tuple.MustEncode(StoreKey...))
}

// Parse returns the marker and the identity that a result shows.
func Parse(r libsql.Result) (marker string, id Store, err error) {
	for _, row := range r.Rows {
		k, _ := row[0].([]byte)
		v, _ := row[1].(string)
		switch string(k) {
		case string(tuple.MustEncode(ModeKey...)):
			if err := json.Unmarshal([]byte(v), &marker); err != nil {
				return "", Store{}, fmt.Errorf("mode marker %s: %w", v, err)
			}
		case string(tuple.MustEncode(StoreKey...)):
			if err := json.Unmarshal([]byte(v), &id); err != nil {
				return "", Store{}, fmt.Errorf("store identity %s: %w", v, err)
			}
		}
	}
	return marker, id, nil
}

// Ensure claims a new store set, or checks that an existing one is written as
// this program writes it. Of several replicas that start at once one claims it.
func Ensure(ctx context.Context, s *kv.Store) (Store, error) {
	for {
		marker, id, err := Read(ctx, s)
		if err != nil {
			return Store{}, err
		}
		if marker != "" || id.ID != "" {
			return id, Check(marker, id)
		}
		id = Store{ID: uuid.NewString(), Layout: Layout, CreatedAt: s.Clock().UnixMilli()}
		p := kv.NewPlan()
		err = errors.Join(p.CheckKey(ModeKey, 0), p.CheckKey(StoreKey, 0), p.SetKey(ModeKey, Marker, 0), p.SetKey(StoreKey, id, 0))
		if err != nil {
			return Store{}, err
		}
		v, err := s.Commit(ctx, p)
		if err != nil {
			return Store{}, fmt.Errorf("claim the store set: %w", err)
		}
		if v.OK {
			return id, nil
		}
	}
}

// Check judges a marker and an identity. Its error wraps [ErrRefused] and says
// what to do.
func Check(marker string, id Store) error {
	switch {
	case marker == Marker && id.Layout == Layout && id.ID != "":
		return nil
	case marker == Marker && id.ID == "":
		return fmt.Errorf("%w: the store set has the mode %q and no identity: its entry %s is missing", ErrRefused, marker, StoreKey)
	case marker == Marker:
		return fmt.Errorf("%w: the store set has layout %d, this program knows %d: use the release that wrote it", ErrRefused, id.Layout, Layout)
	case marker == OlderHost:
		return fmt.Errorf("%w: the store set is used by an older host (mode %q), which keeps objects elsewhere and fences nothing; when it is stopped, dwk fleet adopt takes the store set over", ErrRefused, marker)
	case strings.HasPrefix(marker, migrating):
		return fmt.Errorf("%w: a migration of the store set is under way, or was interrupted (mode %q): wait for its end, or run it again; dwk migrate status shows it", ErrRefused, marker)
	default:
		return fmt.Errorf("%w: the store set has the mode %q, this program knows %q: use the release that wrote it", ErrRefused, marker, Marker)
	}
}

// localStores are what the local mode leaves in its data directory.
var localStores = []string{"d1", "r2", "do", "kv", "queue.sqlite"}

// CheckDataDir refuses a data directory that still holds stores of the local
// mode: serving it would show its applications an empty world.
func CheckDataDir(dir string) error {
	var found []string
	for _, name := range localStores {
		p := filepath.Join(dir, name)
		st, err := os.Stat(p)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("look for local-mode stores: %w", err)
		case !st.IsDir() || holdsFiles(p):
			found = append(found, name)
		}
	}
	lock := filepath.Join(dir, ".dwk-writer.lock")
	if _, err := os.Stat(lock); err == nil {
		found = append(found, filepath.Base(lock))
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s holds stores of the local mode (%s): move them into the fleet's stores or aside first, or set another data_dir", ErrRefused, dir, strings.Join(found, ", "))
}

// holdsFiles reports whether there is any file below dir.
func holdsFiles(dir string) bool {
	found := errors.New("found")
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return found
		}
		return nil
	})
	return err != nil
}
