package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
)

// RegistryConfig describes this replica. The functions must not wait.
type RegistryConfig struct {
	ID, Host, Version string
	PID               int
	// Public is the URL of the public listener.
	Public string
	// StoreID is the identity of the store set that this replica serves.
	StoreID string
	// TTL is how long the entry lives after a heartbeat, which comes at a third of
	// it.
	TTL time.Duration
	// Load tells what the replica does, and Step, which may be nil, what it waits
	// for while it stops.
	Load func() Load
	Step func() string
	// Wake has a poll come at once.
	Wake func()
	// OnDrain is called for each new request to stop.
	OnDrain func(DrainRequest)
	// OnWithdrawn is called when the request that was told of last is gone.
	OnWithdrawn func()
	// OnRefused is called once, when the store set has become one that this
	// program must not serve.
	OnRefused func(error)
}

// A Registry keeps this replica's entry, as a part of the poll. The entry
// expires by itself when the replica dies. Every change of its state takes a new
// stamp, so that who acts on a state can compare it; a heartbeat keeps the stamp
// and never brings the entry back: when it is gone the replica registers again,
// and says so.
type Registry struct {
	cfg   RegistryConfig
	store *kv.Store
	log   *slog.Logger

	key, drainKey []byte
	started       int64

	// Of the polling goroutine alone.
	sent    poll
	beat    time.Time       // when the last heartbeat that succeeded was sent
	drain   kv.Versionstamp // the request that was told of
	written string          // the value that the last poll wrote
	refused bool

	mu        sync.Mutex
	want      State
	asked     bool // want is of no use without a request to stop
	withdrawn bool // it was without one
	known     known
	changed   chan struct{} // closed when known or withdrawn changes
}

// known is what the last look at the entry showed: nothing, or a state and its
// stamp.
type known struct {
	state State
	stamp kv.Versionstamp
}

// poll says what the statements of a poll are; 0 stands for none.
type poll struct {
	look, mode int
	asked      bool // the state is changed only while there is a request
}

var _ Part = (*Registry)(nil)

// NewRegistry returns a registry that registers the replica as starting with the
// first poll.
func NewRegistry(cfg RegistryConfig, store *kv.Store, log *slog.Logger) *Registry {
	return &Registry{
		cfg: cfg, store: store, log: log, want: Starting, changed: make(chan struct{}), started: store.Clock().UnixMilli(),
		key: tuple.MustEncode(ReplicaPrefix, cfg.ID), drainKey: tuple.MustEncode(DrainPrefix, cfg.ID),
	}
}

// SetState changes the state and waits until the entry shows it. When ctx ends
// first it fails; the polls go on trying.
func (r *Registry) SetState(ctx context.Context, s State) error { return r.change(ctx, s, false) }

// SetStopping is SetState of [Stopping] for a replica that was asked to stop
// through the store: it fails with [ErrWithdrawn], the state unchanged, when the
// request is gone. The primary decides, so that either this or a cancellation
// succeeds. When ctx ends first nothing is decided and the replica has to stop:
// the polls go on trying, with or without the request.
func (r *Registry) SetStopping(ctx context.Context) error { return r.change(ctx, Stopping, true) }

func (r *Registry) change(ctx context.Context, s State, asked bool) error {
	r.mu.Lock()
	r.want, r.asked, r.withdrawn = s, asked, false
	r.mu.Unlock()
	r.cfg.Wake()
	for over := false; ; {
		r.mu.Lock()
		done, withdrawn, changed := r.known.state == s, r.withdrawn, r.changed
		if over && !withdrawn {
			r.asked = false
		}
		r.mu.Unlock()
		switch {
		case withdrawn:
			return ErrWithdrawn
		case done:
			return nil
		case over:
			return fmt.Errorf("registry entry of replica %s: state %s is not stored: %w", r.cfg.ID, s, context.Cause(ctx))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			over = true
		}
	}
}

// Remove removes the entry and the request to stop, after the last poll. When
// something had not finished the request stays, and says what.
func (r *Registry) Remove(ctx context.Context, left string) error {
	p := kv.NewPlan().Delete(r.key)
	if left == "" {
		p.Delete(r.drainKey)
	} else {
		p.Add(`UPDATE kv SET v = json_set(v, '$.left', ?) WHERE k = ? AND json_valid(v) AND `+kv.Live+` AND `+kv.OK, left, r.drainKey)
	}
	if _, err := r.store.Commit(ctx, p); err != nil {
		return fmt.Errorf("remove the registry entry of replica %s: %w", r.cfg.ID, err)
	}
	return nil
}

// Name implements [Part].
func (r *Registry) Name() string { return "registry" }

// Poll implements [Part].
func (r *Registry) Poll(int) []libsql.Statement {
	r.mu.Lock()
	want, known, asked := r.want, r.known, r.asked
	r.mu.Unlock()
	r.sent = poll{}
	stmts := []libsql.Statement{libsql.S(`SELECT v, ver FROM kv WHERE k = ? AND `+kv.Live, r.drainKey)}
	switch {
	case known.state != want:
		stmts = append(stmts, r.put(want, known.stamp, asked)...)
	case r.beat.IsZero() || clock.Since(r.beat) >= r.cfg.TTL/3 || r.progressed(known):
		stmts = append(stmts, r.heartbeat(known))
	default:
		return stmts
	}
	r.sent = poll{len(stmts), len(stmts) + 1, asked && known.state != want}
	return append(stmts, libsql.S(`SELECT ver, CASE WHEN json_valid(v) THEN json_extract(v, '$.state') END FROM kv WHERE k = ? AND `+kv.Live, r.key), mode.Statement())
}

// progressed reports whether whoever follows a replica that stops has something
// new to see.
func (r *Registry) progressed(k known) bool {
	return (k.state == Draining || k.state == Stopping) && r.value(k.state) != r.written
}

// value is the entry as text; the statement adds the primary's time.
func (r *Registry) value(s State) string {
	c := r.cfg
	step := ""
	if c.Step != nil && s != Ready {
		step = c.Step()
	}
	b, err := json.Marshal(Replica{
		State: s, Step: step, Host: c.Host, PID: c.PID, Version: c.Version, Layout: mode.Layout, StartedAt: r.started, Public: c.Public, Load: c.Load(),
	})
	if err != nil {
		panic(err) // of texts and numbers only
	}
	return string(b)
}

const beating = `json_set(?, '$.heartbeat_at', ` + kv.Now + `)`

// put writes the entry with a new stamp, when the live one has the given stamp,
// which is 0 for none, and, if asked, while there is a request to stop. It decides
// once, in the first statement.
func (r *Registry) put(s State, stamp kv.Versionstamp, asked bool) []libsql.Statement {
	decide := libsql.S(`UPDATE kv_meta SET ok = 2, seq = seq + 1 WHERE id = 0 AND coalesce((SELECT ver FROM kv WHERE k = ? AND `+kv.Live+`), 0) = ?`, r.key, int64(stamp))
	if asked {
		decide.SQL += ` AND EXISTS (SELECT 1 FROM kv WHERE k = ? AND ` + kv.Live + `)`
		decide.Args = append(decide.Args, r.drainKey)
	}
	r.written = r.value(s)
	return []libsql.Statement{
		decide,
		libsql.S(`INSERT INTO kv(k, v, ver, expires_at) SELECT ?, `+beating+`, seq, `+kv.Now+` + ? FROM kv_meta WHERE id = 0 AND ok = 2
		ON CONFLICT(k) DO UPDATE SET v = excluded.v, ver = excluded.ver, expires_at = excluded.expires_at`, r.key, r.written, r.cfg.TTL.Milliseconds()),
		libsql.S(`UPDATE kv_meta SET ok = 1 WHERE id = 0 AND ok = 2`),
	}
}

// heartbeat extends the entry that is known, its stamp unchanged.
func (r *Registry) heartbeat(k known) libsql.Statement {
	r.written = r.value(k.state)
	return libsql.S(`UPDATE kv SET v = `+beating+`, expires_at = `+kv.Now+` + ? WHERE k = ? AND ver = ? AND `+kv.Live,
		r.written, r.cfg.TTL.Milliseconds(), r.key, int64(k.stamp))
}

// Polled implements [Part].
func (r *Registry) Polled(res []libsql.Result, err error, sent time.Time) (again bool) {
	if err != nil {
		return false
	}
	r.readDrain(res[0])
	if r.sent.look == 0 {
		return false
	}
	r.readMode(res[r.sent.mode])
	return r.readEntry(res[r.sent.look], len(res[0].Rows) > 0, sent)
}

// readEntry takes what the entry is now, and asks for a further poll when that is
// not what it should be.
func (r *Registry) readEntry(res libsql.Result, request bool, sent time.Time) (again bool) {
	var now known
	if len(res.Rows) > 0 {
		ver, _ := res.Rows[0][0].(int64)
		state, _ := res.Rows[0][1].(string)
		now = known{State(state), kv.Versionstamp(ver)}
	}
	r.mu.Lock()
	was := r.known
	withdrawn := r.asked && r.sent.asked && !request && now.state != Stopping
	if withdrawn {
		r.want, r.asked, r.withdrawn = Draining, false, true
	}
	want := r.want
	if now != was || withdrawn {
		r.known = now
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	switch {
	case now.stamp == 0 && was.stamp != 0:
		r.log.Warn(event.FleetReplicaLost, "state", string(want), "last_heartbeat", clock.Since(r.beat).Round(time.Millisecond).String()+" ago")
	case now.stamp != 0 && was.stamp == 0:
		r.log.Info(event.FleetReplicaRegistered, "state", string(now.state))
	case now != was:
		r.log.Info(event.FleetReplicaState, "state", string(now.state))
	}
	if now.stamp != 0 {
		r.beat = sent
	}
	return now.state != want
}

// readDrain tells of a request to stop that is new, or gone.
func (r *Registry) readDrain(res libsql.Result) {
	if len(res.Rows) == 0 {
		if r.drain != 0 {
			r.drain = 0
			r.cfg.OnWithdrawn()
		}
		return
	}
	text, _ := res.Rows[0][0].(string)
	ver, _ := res.Rows[0][1].(int64)
	if kv.Versionstamp(ver) == r.drain {
		return
	}
	r.drain = kv.Versionstamp(ver)
	var d DrainRequest
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		r.log.Warn(event.DrainRequested, event.KeyError, err)
		return
	}
	r.cfg.OnDrain(d)
}

// readMode judges what the store set is used for now.
func (r *Registry) readMode(res libsql.Result) {
	if r.refused {
		return
	}
	marker, id, err := mode.Parse(res)
	if err == nil {
		err = mode.Check(marker, id)
	}
	if err == nil && id.ID != r.cfg.StoreID {
		err = fmt.Errorf("%w: the store set is %s now, this replica serves %s", mode.ErrRefused, id.ID, r.cfg.StoreID)
	}
	if err != nil {
		r.refused = true
		r.log.Error(event.FleetModeRefused, event.KeyError, err)
		r.cfg.OnRefused(err)
	}
}
