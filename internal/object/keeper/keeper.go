// Package keeper keeps the logs of objects short: it merges commits into rows
// of higher levels, writes snapshots, removes what is kept no longer and
// collects files that nothing names.
//
// None of this needs a lease. Every step reads the log, works on the side, and
// changes the log in one statement that is guarded by what the step was made
// of, so any replica may do it, and two may do the same at once. Merging and
// snapshots add rows and remove none; retention removes rows that others
// cover, so that a reader finds a way at any time.
//
// Work comes from two sides. [Keeper.Committed] is told of every commit and
// merges right behind it; a slow walk over all heads makes up for what a crash
// or a full queue left out, and does the rest.
package keeper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// Config says what is kept. Zero means the default, except for StoreID, which
// must be set.
type Config struct {
	// StoreID is the store set's identity. Files of other store sets in the
	// same place are never touched.
	StoreID string
	// Dir is where temporary files are made; empty is the system's place.
	Dir string
	// InlineLimit is the largest LTX file that a row holds itself, in bytes.
	InlineLimit int64
	// Every position is kept for Full, but no more than the newest FullSize
	// bytes of them; then the last one of each hour for Hourly.
	Full     time.Duration
	FullSize int64
	Hourly   time.Duration
	// Pace is the time between two steps of the walk.
	Pace time.Duration
}

// Defaults of Config.
const (
	DefaultInlineLimit = 256 << 10
	DefaultFull        = 15 * time.Minute
	DefaultFullSize    = 64 << 20
	DefaultHourly      = 24 * time.Hour
	DefaultPace        = time.Minute
)

// WithDefaults returns c with defaults in place of zeros.
func (c Config) WithDefaults() Config {
	set(&c.InlineLimit, DefaultInlineLimit)
	set(&c.Full, DefaultFull)
	set(&c.FullSize, DefaultFullSize)
	set(&c.Hourly, DefaultHourly)
	set(&c.Pace, DefaultPace)
	return c
}

func set[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

const (
	// queueLen bounds the commits that wait for their merge; more are dropped,
	// which the walk makes up for.
	queueLen = 1024
	// taskTime bounds the work on one object.
	taskTime = 15 * time.Minute
)

// A Keeper works on the logs of one store set, one step after the other.
type Keeper struct {
	cfg    Config
	store  *kv.Store
	blobs  Blobs
	reader Reader
	log    *slog.Logger

	queue  chan task
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex // held by a step
	walk walk
}

type task struct {
	class, id string
	txid      uint64
}

// New returns a keeper that does nothing until it is started or asked to.
func New(cfg Config, store *kv.Store, blobs Blobs, log *slog.Logger) *Keeper {
	cfg = cfg.WithDefaults()
	return &Keeper{
		cfg: cfg, store: store, blobs: blobs, log: log, queue: make(chan task, queueLen),
		reader: Reader{Store: store, Blobs: blobs, Dir: cfg.Dir},
	}
}

// Start begins to work in the background.
func (k *Keeper) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.done.Go(func() { k.run(ctx) })
}

// Stop ends the work and waits for it. What was begun is left undone, which is
// harmless.
func (k *Keeper) Stop() {
	if k.cancel != nil {
		k.cancel()
	}
	k.done.Wait()
}

// Committed says that an object has reached a position. It never waits.
func (k *Keeper) Committed(class, id string, txid uint64) {
	if txid%objlog.Span(1) != 0 {
		return
	}
	select {
	case k.queue <- task{class, id, txid}:
	default:
	}
}

func (k *Keeper) run(ctx context.Context) {
	pace := time.NewTicker(k.cfg.Pace)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-k.queue:
			k.report(ctx, k.Compact(ctx, t.class, t.id, t.txid), slog.String(event.KeyClass, t.class), slog.String(event.KeyObject, t.id))
		case <-pace.C:
			_, err := k.Step(ctx)
			k.report(ctx, err)
		}
	}
}

func (k *Keeper) report(ctx context.Context, err error, attrs ...slog.Attr) {
	if err != nil && !errors.Is(err, context.Canceled) {
		k.log.LogAttrs(ctx, slog.LevelWarn, event.ObjectKeepFailed, append(attrs, slog.Any(event.KeyError, err))...)
	}
}
