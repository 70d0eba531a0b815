package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/backlog"
	"github.com/davidwkeith/dwk/internal/cache"
	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/fleet"
	"github.com/davidwkeith/dwk/internal/guard"
	"github.com/davidwkeith/dwk/internal/metrics"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/socket"
	"github.com/davidwkeith/dwk/internal/probe"
	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/server"
)

// ServeOptions say what a replica serves.
type ServeOptions struct {
	Config *config.Config
	// Apps are the applications that mounts may name.
	Apps    []durable.App
	Log     *slog.Logger
	Version string
	// Started, when not nil, is called with the addresses of the listeners when
	// the replica is ready.
	Started func(public, admin string)
	// Stopping, when not nil, is called when a stop begins, with a function that
	// logs what has not finished: for a process that is about to end at once.
	Stopping func(abandon func())
}

// Serve runs a replica until ctx ends, and then stops it in order: readiness
// fails, the grace passes, the listener closes, requests and events finish,
// and no lease is left. It returns an error when the replica could not start,
// naming every store that failed and why, or when something did not finish in
// time.
func Serve(ctx context.Context, o ServeOptions) error {
	r := newReplica(o)
	defer r.close()
	if err := r.start(ctx); err != nil {
		return err
	}
	return r.run(ctx)
}

func newReplica(o ServeOptions) *replica {
	r := &replica{opts: o, cfg: o.Config, id: newReplicaID(), began: clock.Now(), ends: make(chan ending, 1), asks: make(chan *fleet.DrainRequest, 1)}
	r.metrics = metrics.New(metrics.Config{Version: o.Version, Replica: r.id})
	r.log = slog.New(r.metrics.Log(o.Log.Handler())).With("replica", r.id)
	return r
}

func newReplicaID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:8])
}

// A replica is one running process of the fleet.
type replica struct {
	opts  ServeOptions
	cfg   *config.Config
	id    string
	began time.Time
	// log counts the events that it is given; see package metrics.
	log     *slog.Logger
	metrics *metrics.Metrics

	stores        *Stores
	buckets       *Buckets
	databases     Databases
	caches        map[string]*cache.Cache
	secrets       *secrets
	dir           *replicaDir
	public, admin *server.Server
	site          *server.Public
	control       http.Handler
	ready         *server.Readiness
	objects       *object.Runtime
	keeper        *keeper.Keeper
	storeID       string
	client        *http.Client
	poller        *fleet.Poller
	consumers     *queue.Consumers
	registry      *fleet.Registry
	backlog       *backlog.Watch
	crons         *cron.Runner
	left          bool                     // the registry
	ends          chan ending              // why to stop
	asks          chan *fleet.DrainRequest // the last request through the store, nil when it is gone
	step          atomic.Value             // the step of the stop, a text

	// undo are the ends of what has begun, in the order of their beginning.
	undo []func() error
}

// close ends everything that start began, last first.
func (r *replica) close() {
	for _, end := range slices.Backward(r.undo) {
		if err := end(); err != nil {
			r.log.Warn(event.ServeStopped, event.KeyError, err)
		}
	}
	r.undo = nil
}

func (r *replica) start(ctx context.Context) error {
	if err := mode.CheckDataDir(r.cfg.DataDir); err != nil {
		return err
	}
	if err := r.listen(ctx); err != nil {
		return err
	}
	if err := r.openStores(ctx); err != nil {
		return err
	}
	if err := r.openObjects(); err != nil {
		return err
	}
	if err := r.openFleet(); err != nil {
		return err
	}
	if err := r.mount(); err != nil {
		return err
	}
	return r.join(ctx)
}

// listen takes both addresses first, so that a port in use is known before
// anything is touched.
func (r *replica) listen(ctx context.Context) error {
	var err error
	r.public, err = server.Listen(ctx, server.Config{Name: "public", Addr: r.cfg.Listen, Cert: r.cfg.TLS.Cert, Key: r.cfg.TLS.Key, Pace: r.pace(), Logger: r.log})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, r.public.Close)
	r.admin, err = server.Listen(ctx, server.Config{Name: "admin", Addr: r.cfg.Admin.Listen, Pace: r.pace(), Logger: r.log})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, r.admin.Close)
	return nil
}

// pace is how slow clients may be.
func (r *replica) pace() server.Pace {
	c := r.cfg.Clients
	return server.Pace{Stall: c.Stall, Rate: int64(c.MinRate), Send: c.SendTimeout}
}

func (r *replica) openStores(ctx context.Context) error {
	var err error
	if r.stores, err = open(r.cfg, r.observe("coordination")); err != nil {
		return err
	}
	r.undo = append(r.undo, r.stores.Close)
	if r.databases, err = OpenDatabases(r.cfg, r.observeCalls); err != nil {
		return err
	}
	r.undo = append(r.undo, r.databases.Close)
	if r.buckets, err = OpenBuckets(r.cfg, r.observeCalls); err != nil {
		return err
	}
	r.undo = append(r.undo, r.buckets.Close)
	call, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	store, err := r.stores.Init(call)
	if err != nil {
		return fmt.Errorf("coordination store %s cannot be used: %w", r.stores.DB, err)
	}
	r.storeID = store.ID
	r.log = r.log.With("store_id", store.ID)
	if err := r.probe(call); err != nil {
		return err
	}
	return r.claimBuckets(call)
}

// claimBuckets makes the object store this store set's, or refuses it, and
// removes what crashes have left in the buckets.
func (r *replica) claimBuckets(ctx context.Context) error {
	if err := claimBucket(ctx, r.buckets.Files, r.storeID, r.stores.DB.String()); err != nil {
		return fmt.Errorf("object store %s cannot be used: %w", r.cfg.ObjectStoreURLOrDefault(), err)
	}
	for _, c := range r.cfg.Buckets {
		if _, err := r.buckets.ByName[c.Name].Sweep(ctx); err != nil { // it only takes space
			r.log.Warn(event.BucketSweepFailed, "bucket", c.Name, event.KeyError, err)
		}
	}
	return nil
}

// startTimeout bounds what a replica does with its stores before it serves.
const startTimeout = 30 * time.Second

// maxEntry bounds one commit's log entry, which is made in memory. An event
// that changes more is refused.
const maxEntry = 64 << 20

func (r *replica) openObjects() error {
	var err error
	if r.dir, err = openReplicaDir(r.cfg.ReplicaDirOrDefault(), r.id); err != nil {
		return err
	}
	r.undo = append(r.undo, r.dir.remove)
	c := r.cfg
	r.client = guard.NewClient(guard.Config{})
	files := keeper.InBucket(r.buckets.Files)
	r.keeper = keeper.New(keeper.Config{
		StoreID: r.storeID, Dir: r.dir.path, InlineLimit: int64(c.Objects.InlineLimit),
		Full: c.Objects.Retention.Full, FullSize: int64(c.Objects.Retention.FullSize), Hourly: c.Objects.Retention.Hourly,
	}, r.stores.KV, files, r.log)
	r.keeper.Start()
	r.undo = append(r.undo, func() error { r.keeper.Stop(); return nil })
	r.objects = object.New(object.Config{
		Replica: r.id, Dir: r.dir.path,
		LeaseTTL: c.Lease.TTL, AcquireTimeout: c.Lease.AcquireTimeout, Waiters: c.Lease.Waiters,
		EventTimeout: c.Event.Timeout, BodyLimit: int64(c.Event.BodyLimit), Buffer: int64(c.Event.Buffer), Spool: int64(c.Event.Spool),
		Linger: c.Objects.Linger, Idle: c.Objects.Idle, Resident: min(c.Objects.Resident, maxResident(min(c.Sockets.Max, maxSockets()))), Memory: objectMemory(int64(c.Objects.Memory)),
		Mirror:  mirror.Config{CacheBytes: int64(c.Objects.CacheSize), MaxSize: int64(c.Objects.MaxSize), MaxEntry: maxEntry},
		StoreID: r.storeID, Blobs: files, InlineLimit: int64(c.Objects.InlineLimit), Committed: r.keeper.Committed,
		Sockets: socket.Config{
			Max: min(c.Sockets.Max, maxSockets()), MessageLimit: int64(c.Sockets.MessageLimit), QueueLimit: int64(c.Sockets.QueueLimit),
			Incoming: int64(max(c.Sockets.Incoming, c.Sockets.MessageLimit)),
			Ping:     c.Sockets.Ping, Timeout: c.Sockets.Timeout, Idle: c.Sockets.Idle,
		},
		HoldTTL:      c.Fleet.HeartbeatTTL,
		AlarmRetries: c.Alarms.Retries, AlarmBackoff: c.Alarms.Backoff, AlarmBatch: c.Alarms.Batch,
		WakeAt: func(t time.Time) { r.poller.WakeAt(t) },
	}, r.stores.KV, r.log)
	r.undo = append(r.undo, func() error {
		// After an orderly stop there is nothing left to wait for.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.objects.Stop(ctx)
	})
	return nil
}

// withRequestID has the events of a request carry its id.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req.WithContext(object.WithRequestID(req.Context(), server.RequestID(req.Context()))))
	})
}

// coordination is what readiness calls the coordination store.
const coordination = "coordination"

func (r *replica) handlers(base *url.URL, mounts []server.Mount, wellKnown map[string]http.Handler) error {
	checks := []server.Check{{Name: coordination, MaxAge: 2 * time.Second, Timeout: r.cfg.LibSQL.Timeout, Run: func(ctx context.Context) error {
		_, err := r.stores.KV.Now(ctx)
		return err
	}}}
	for _, c := range r.cfg.Databases {
		d := r.databases[c.Name]
		checks = append(checks, server.Check{Name: probe.SQL + ":" + c.Name, MaxAge: 2 * time.Second, Timeout: r.cfg.LibSQL.Timeout, Run: func(ctx context.Context) error {
			_, err := d.First(ctx, `SELECT 1`)
			return err
		}})
	}
	checks = append(checks, bucketCheck(probe.ObjectStore, r.buckets.Files, r.cfg.ObjectStore.Timeout))
	for _, c := range r.cfg.Buckets {
		checks = append(checks, bucketCheck(probe.BucketStore(c.Name), r.buckets.ByName[c.Name], r.cfg.ObjectStore.Timeout))
	}
	r.ready = server.NewReadiness(r.log, checks...)
	var health http.Handler
	if r.cfg.Admin.HealthOnPublic {
		health = server.NewHealth(r.id, r.ready, func(*http.Request) bool { return false })
	}
	var err error
	r.site, err = server.NewPublic(server.PublicConfig{
		BaseURL: base, Mounts: mounts, WellKnown: wellKnown, Health: health, Dir: r.cfg.PublicDir, Replica: r.id, Logger: r.log,
		Done: func(a server.Access) { r.metrics.Request(a.Mount, a.Status, a.Duration) },
	})
	if err != nil {
		return err
	}
	r.undo = append(r.undo, r.site.Close)
	r.metrics.Register(r.gauges())
	r.control, err = server.NewAdmin(server.AdminConfig{
		Readiness: r.ready, Token: r.cfg.Admin.Token.Reveal(), Pprof: r.cfg.Admin.Pprof, Replica: r.id, Logger: r.log,
		Handlers: map[string]http.Handler{"/metrics": r.metrics.Handler(), "/drain": http.HandlerFunc(r.serveDrain)},
	})
	return err
}

// bucketCheck asks a bucket for a key that it need not have. That a whole bucket
// is missing looks the same, but for a list.
func bucketCheck(name string, b durable.Bucket, timeout time.Duration) server.Check {
	return server.Check{Name: name, MaxAge: 30 * time.Second, Timeout: timeout, Run: func(ctx context.Context) error {
		_, err := b.Head(ctx, markerKey)
		if errors.Is(err, durable.ErrNotFound) {
			_, err = b.List(ctx, durable.ListOptions{Prefix: markerKey, Limit: 1})
		}
		return err
	}}
}
