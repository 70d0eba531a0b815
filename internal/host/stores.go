// Package host puts the parts together: it opens the stores for every command
// and is the whole of a replica for serve.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// ErrNoStore says that the stores have never been served: there is nothing to
// look at.
var ErrNoStore = errors.New("the store set is empty: no replica has ever run on it")

// Stores are the opened stores of a configuration.
type Stores struct {
	Config *config.Config
	// DB is the coordination database, which also holds the object logs, and KV
	// the coordination store on it.
	DB *libsql.DB
	KV *kv.Store
}

// Open opens the stores of a configuration. It does not touch the network.
func Open(cfg *config.Config) (*Stores, error) { return open(cfg, nil) }

// open is Open with a function that is told of every round trip.
func open(cfg *config.Config, observe func(took time.Duration, err error)) (*Stores, error) {
	db, err := libsql.Open(libsql.Config{
		URL: cfg.LibSQLURLOrDefault(), Token: cfg.LibSQL.Token.Reveal(), Namespace: cfg.LibSQL.Namespace,
		CA: cfg.LibSQL.CA, Timeout: cfg.LibSQL.Timeout, MaxConns: cfg.LibSQL.MaxConns, Observe: observe,
	})
	if err != nil {
		return nil, fmt.Errorf("coordination store: %w", err)
	}
	return &Stores{Config: cfg, DB: db, KV: kv.New(db)}, nil
}

// OpenExisting is Open for commands that look at stores and never create them:
// it fails with [ErrNoStore] when no replica has ever run on them.
func OpenExisting(ctx context.Context, cfg *config.Config) (*Stores, error) {
	return openWith(ctx, cfg, "kv", "kv_meta", "obj_head", "obj_log")
}

// OpenOlder is [OpenExisting] for a store set that an older host may have made:
// it has the tables of the coordination store, and perhaps no others.
func OpenOlder(ctx context.Context, cfg *config.Config) (*Stores, error) {
	return openWith(ctx, cfg, "kv", "kv_meta")
}

// openWith opens a store set that has the tables.
func openWith(ctx context.Context, cfg *config.Config, tables ...string) (*Stores, error) {
	url := cfg.LibSQLURLOrDefault()
	if path, err := config.FilePath(url); err == nil {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w (there is no %s)", ErrNoStore, path)
		}
	}
	s, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	res, err := s.DB.Batch(ctx, libsql.Read, libsql.S(`SELECT name FROM sqlite_master WHERE type = 'table'`))
	if err == nil && !hasAll(res[0], tables) {
		err = fmt.Errorf("%w (%s)", ErrNoStore, s.DB)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func hasAll(names libsql.Result, tables []string) bool {
	for _, t := range tables {
		if !slices.ContainsFunc(names.Rows, func(row libsql.Row) bool { return row[0] == t }) {
			return false
		}
	}
	return true
}

// Init creates what is missing in the stores and claims them, or refuses them
// when they belong to something else.
func (s *Stores) Init(ctx context.Context) (mode.Store, error) {
	if err := s.KV.Init(ctx, objlog.Schema...); err != nil {
		return mode.Store{}, err
	}
	return mode.Ensure(ctx, s.KV)
}

// Close closes the stores.
func (s *Stores) Close() error { return s.DB.Close() }
