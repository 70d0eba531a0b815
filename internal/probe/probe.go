// Package probe checks that the stores of a configuration do what the fleet's
// promises rest on, by doing it: it writes, compares, commits and reads back
// entries of its own, and leaves none of them behind, also when it is
// interrupted. It returns values and prints nothing.
package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
)

// The things that are checked, as Options.Only names them and Result.Store
// shows them.
const (
	Coordination = "coordination" // entries of the coordination store
	ObjectLog    = "object-log"   // a sentinel object's lease and log
	Mode         = "mode"         // the marker that says how the store set is written
	Clock        = "clock"        // the primary's clock against this machine's
)

// Names returns what Options.Only may name besides single bindings, in the order
// of the checks.
func Names() []string {
	return []string{Coordination, ObjectLog, Mode, Clock, SQL, ObjectStore, Buckets}
}

const (
	// cleanupTimeout bounds the removal of what an interrupted or failed check
	// left, which goes on when the probe's context has ended.
	cleanupTimeout = 5 * time.Second
	// MaxRepeat bounds Options.Repeat.
	MaxRepeat = 1000
)

// A Target is what is probed.
type Target struct {
	// DB is the coordination database, which also holds the object logs.
	DB kv.DB
	// KV is the coordination store on DB. It learns the primary's clock.
	KV *kv.Store
	// Databases are the SQL bindings.
	Databases []Database
	// Buckets are the bucket bindings and the object store.
	Buckets []Bucket
	// TempDir is where the mirrors of the object log check lie while it runs;
	// "" is the system's directory.
	TempDir string
}

// Options say how to probe. Zero values mean the defaults.
type Options struct {
	// Repeat is how often each check is made; 1, at most MaxRepeat.
	Repeat int
	// Budget fails a check whose median round trip takes longer; 0 is no bound.
	Budget time.Duration
	// Only are the names of what to check; all without any.
	Only []string
	// Quick leaves out what takes long: large bodies.
	Quick bool
}

// Validate reports options that cannot be used.
func (o Options) Validate() error {
	if o.Repeat < 0 || o.Repeat > MaxRepeat {
		return fmt.Errorf("probe: %d repetitions are not between 1 and %d", o.Repeat, MaxRepeat)
	}
	if o.Budget < 0 {
		return errors.New("probe: a negative budget")
	}
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) && !strings.HasPrefix(name, SQL+":") && !strings.HasPrefix(name, Buckets+":") {
			return fmt.Errorf("probe: nothing is called %q, only %s", name, strings.Join(Names(), ", "))
		}
	}
	return nil
}

// wants reports whether a store is to be checked, by its own name or that of
// its kind.
func (o Options) wants(name string) bool {
	kind, _, _ := strings.Cut(name, ":")
	return len(o.Only) == 0 || slices.Contains(o.Only, name) || slices.Contains(o.Only, kind)
}

// known reports single bindings that are not there.
func (o Options) known(t Target) error {
	for _, name := range o.Only {
		if strings.HasPrefix(name, SQL+":") && !slices.ContainsFunc(t.Databases, func(d Database) bool { return d.store() == name }) {
			return fmt.Errorf("probe: there is no SQL binding %q", strings.TrimPrefix(name, SQL+":"))
		}
		if strings.HasPrefix(name, Buckets+":") && !slices.ContainsFunc(t.Buckets, func(b Bucket) bool { return b.Store == name }) {
			return fmt.Errorf("probe: there is no bucket %q", strings.TrimPrefix(name, Buckets+":"))
		}
	}
	return nil
}

// Run makes the checks and returns one result each, in a stable order. What is
// wrong with a store is in its results; the error is for options that cannot be
// used, and for a context that was cancelled. When a deadline ends the context,
// the checks that it cut off are results like others.
func Run(ctx context.Context, t Target, o Options) ([]Result, error) {
	if err := errors.Join(o.Validate(), o.known(t)); err != nil {
		return nil, err
	}
	o.Repeat = max(o.Repeat, 1)
	p := &prober{Target: t, Options: o}
	out, err := p.coordination(ctx)
	if err != nil {
		return out, err
	}
	for _, g := range p.bindings(ctx) {
		g.measure()
		out = append(out, g.results()...)
		if errors.Is(ctx.Err(), context.Canceled) {
			return out, context.Cause(ctx)
		}
	}
	return out, nil
}

// bindings are the groups of what is not in the coordination database.
func (p *prober) bindings(ctx context.Context) (groups []*group) {
	for _, d := range p.Databases {
		if p.wants(d.store()) {
			g := p.group(ctx, d.store(), binding{Database: d}.check, "write", "read", "atomicity", "delete")
			g.address = d.DB.String()
			groups = append(groups, g)
		}
	}
	for _, b := range p.Buckets {
		if p.wants(b.Store) {
			c := &counted{Bucket: b.Bucket}
			bp := &bucketProbe{Bucket: c, quick: p.Quick, end: b.EndUploads}
			check := bp.check
			if b.ReadOnly {
				check = bp.checkReads
			}
			g := p.group(ctx, b.Store, check, bucketChecks...)
			g.address, g.calls = b.Address, &c.calls
			groups = append(groups, g)
		}
	}
	return groups
}

// coordination checks what is in the coordination database.
func (p *prober) coordination(ctx context.Context) ([]Result, error) {
	o := p.Options
	if !slices.ContainsFunc([]string{Coordination, ObjectLog, Mode, Clock}, o.wants) {
		return nil, nil
	}
	open := p.group(ctx, Coordination, p.open, "open")
	open.options.Repeat, open.options.Budget = 1, 0 // it includes the connection
	open.measure()
	var out []Result
	if open.failed != "" || o.wants(Coordination) {
		out = open.results()
	}
	for _, g := range []*group{
		p.group(ctx, Coordination, p.entries, "write", "read", "compare-and-set", "delete"),
		p.group(ctx, ObjectLog, p.sentinel, "acquire", "commit", "sync", "delete"),
		p.group(ctx, Mode, p.marker, "marker"),
		p.group(ctx, Clock, p.skew, "skew"),
	} {
		switch {
		case !o.wants(g.store):
			continue
		case open.failed != "":
			g.skip("the store could not be opened")
		case g.store == ObjectLog && p.noLogs != "":
			g.skip(p.noLogs)
		default:
			g.measure()
		}
		out = append(out, g.results()...)
		if errors.Is(ctx.Err(), context.Canceled) {
			return out, context.Cause(ctx)
		}
	}
	return out, nil
}

// A prober is one run.
type prober struct {
	Target
	Options
	created bool   // the store set was new
	noLogs  string // why there are no object logs to check
}

// cleanup returns the context of a removal after ctx may have ended.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}
