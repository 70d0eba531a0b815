package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/objectops"
)

func newMigrate(e *env) *cobra.Command {
	return group("migrate", "Move a local data directory to the fleet, and back", `Move the data directory of a single-process host into the stores of a fleet, or the
stores into such a directory. Nothing is moved twice and nothing by halves: a run
that was interrupted, or killed, goes on when it is repeated.

For the time of a move the store set is marked, so that no replica serves it.`,
		newMigrateUp(e), newMigrateDown(e), newMigrateStatus(e), newMigrateAbandon(e))
}

// Bounds of a move.
const (
	// moveTimeout bounds a statement of a SQL binding: the making of an index
	// takes its time.
	moveTimeout = 10 * time.Minute
	// moveMemory is what the program tries to stay below, in bytes.
	moveMemory = 96 << 20
)

// migrateFlags are shared by both directions.
type migrateFlags struct {
	dir, queueDB string
	only         []string
	maps         []string
	jobs         int
	verify       string
	report       string
	dryRun, yes  bool
}

func (o *migrateFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.dir, "data-dir", "", "the local data `DIRECTORY` (default data_dir of the configuration)")
	f.StringVar(&o.queueDB, "queue-db", "", "the queue backlog, a SQLite `FILE` (default queue.sqlite in the data directory)")
	f.StringSliceVar(&o.only, "only", nil, "only these `KINDS`, of d1, do, r2 and queue")
	f.StringArrayVar(&o.maps, "map", nil, "another name for a SQL database or bucket: `FROM=TO`")
	f.IntVar(&o.jobs, "jobs", 4, "how many items move at a time")
	f.StringVar(&o.verify, "verify", string(migrate.VerifyFull), "compare both sides: `full`, every row, byte and alarm; counts; or none")
	f.StringVar(&o.report, "report", "", "write what became of each item to this `FILE`, as lines of JSON")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what it would do")
	yesFlag(cmd, &o.yes)
}

// config is the part of the configuration of a move that flags give.
func (o *migrateFlags) config(dataDir string) (migrate.Config, error) {
	c := migrate.Config{Dir: o.dir, QueueFile: o.queueDB, Jobs: o.jobs, Verify: migrate.Verify(o.verify), DryRun: o.dryRun, Map: map[string]string{}}
	if c.Dir == "" {
		c.Dir = dataDir
	}
	for _, k := range o.only {
		if !slices.Contains(migrate.Kinds, migrate.Kind(k)) {
			return c, usagef("--only %s: want d1, do, r2 or queue", k)
		}
		c.Only = append(c.Only, migrate.Kind(k))
	}
	if !slices.Contains([]migrate.Verify{migrate.VerifyFull, migrate.VerifyCounts, migrate.VerifyNone}, c.Verify) {
		return c, usagef("--verify %s: want full, counts or none", o.verify)
	}
	if o.jobs < 1 || o.jobs > 64 {
		return c, usagef("--jobs must be from 1 to 64")
	}
	targets := map[string]bool{}
	for _, m := range o.maps {
		from, to, ok := strings.Cut(m, "=")
		if !ok || from == "" || to == "" {
			return c, usagef("--map %s: want FROM=TO", m)
		}
		if _, twice := c.Map[from]; twice || targets[to] {
			return c, usagef("--map %s: a name is there twice", m)
		}
		c.Map[from], targets[to] = to, true
	}
	var err error
	c.Host, err = os.Hostname()
	return c, err
}

// moveStores are the stores of a move.
type moveStores struct {
	*host.Stores
	target    migrate.Target
	files     *host.Files
	databases host.Databases
	buckets   []*host.Bucket
}

// openMove opens the stores of a move. Without create it returns a target
// without a store when no replica has ever run on them, and makes nothing.
func (e *env) openMove(ctx context.Context, create bool) (*moveStores, error) {
	debug.SetMemoryLimit(moveMemory)
	cfg, err := e.load(nil)
	if err != nil {
		return nil, err
	}
	m := &moveStores{target: migrate.Target{Databases: map[string]migrate.Database{}, Buckets: map[string]durable.Bucket{}}}
	m.Stores, err = host.OpenExisting(ctx, cfg)
	switch {
	case errors.Is(err, host.ErrNoStore) && !create:
		for _, d := range cfg.Databases {
			m.target.Databases[d.Name] = nil
		}
		for _, b := range cfg.Buckets {
			m.target.Buckets[b.Name] = nil
		}
		m.target.Primary = cfg.LibSQLURLOrDefault()
		m.Stores = &host.Stores{Config: cfg}
		return m, nil
	case errors.Is(err, host.ErrNoStore):
		m.Stores, err = host.Open(cfg)
	}
	if err != nil {
		return nil, err
	}
	if err := m.open(ctx, create); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *moveStores) open(ctx context.Context, create bool) error {
	cfg := m.Config
	marker, id, err := mode.Read(ctx, m.KV)
	if err != nil && !create {
		return err
	}
	if _, moving := mode.MoveOf(marker); err != nil || marker == "" && id.ID == "" {
		if !create {
			return fmt.Errorf("%w (%s)", host.ErrNoStore, m.DB)
		}
		if id, err = m.Init(ctx); err != nil {
			return err
		}
	} else if !moving {
		if err := mode.Check(marker, id); err != nil {
			return err
		}
	}
	if err := m.owned(ctx, id.ID, create); err != nil {
		return fmt.Errorf("object store %s: %w", cfg.ObjectStoreURLOrDefault(), err)
	}
	m.files = m.Files(id.ID)
	m.target.Store, m.target.StoreID, m.target.Primary = m.KV, id.ID, m.DB.String()
	m.target.Objects = objectops.New(objectops.Config{
		Store: m.KV, Blobs: m.files, StoreID: id.ID, LeaseTTL: cfg.Lease.TTL, InlineLimit: int64(cfg.Objects.InlineLimit), MaxSize: int64(cfg.Objects.MaxSize),
	})
	patient := *cfg
	patient.LibSQL.Timeout = max(patient.LibSQL.Timeout, moveTimeout)
	if m.databases, err = host.OpenDatabases(&patient, nil); err != nil {
		return err
	}
	for name, d := range m.databases {
		m.target.Databases[name] = d.LibSQL()
	}
	for _, c := range cfg.Buckets {
		b, err := host.OpenBucket(cfg, c.Name)
		if err != nil {
			return err
		}
		m.buckets = append(m.buckets, b)
		m.target.Buckets[c.Name] = b
	}
	return nil
}

// owned claims the object store, or looks whose it is.
func (m *moveStores) owned(ctx context.Context, id string, claim bool) error {
	if claim {
		return m.EnsureObjectStore(ctx, id)
	}
	owner, _, err := m.ObjectStoreOwner(ctx)
	if err == nil && owner != "" && owner != id {
		err = fmt.Errorf("%w: it belongs to store set %s, this is %s: use another bucket or prefix", mode.ErrRefused, owner, id)
	}
	return err
}

// fresh reports whether there is no store set yet.
func (m *moveStores) fresh() bool { return m.DB == nil }

// Close closes everything.
func (m *moveStores) Close() error {
	var errs []error
	for _, b := range m.buckets {
		errs = append(errs, b.Close())
	}
	if m.databases != nil {
		errs = append(errs, m.databases.Close())
	}
	if m.files != nil {
		errs = append(errs, m.files.Close())
	}
	if m.DB != nil {
		errs = append(errs, m.Stores.Close())
	}
	return errors.Join(errs...)
}

// moveError gives the result of a move its error, and so its exit code.
func moveError(r *migrate.Result, err error) error {
	t := r.Total()
	done := t.Moved + t.Already
	if err == nil && t.Bad > 0 {
		err = fmt.Errorf("%s not moved, or must be looked at; the answer names them", plural(int(t.Bad), "item"))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fleet.ErrInUse):
		return withHint(err, "stop the fleet first: dwk fleet status, dwk drain --all --wait, dwk lease list")
	case done > 0:
		what := "%s moved"
		if r.DryRun {
			what = "%s would move or are there"
		}
		return partlyError{fmt.Sprintf(what, plural(int(done), "item")), err}
	}
	return err
}
