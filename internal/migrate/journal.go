package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// The first elements of the journal's keys.
const (
	// JournalPrefix begins ["dwk_migrate", plan, item].
	JournalPrefix = "dwk_migrate"
	// MarkerPrefix begins ["dwk_migrated", source, row], which says which message
	// of a row was imported.
	MarkerPrefix = "dwk_migrated"
)

// States of an entry.
const (
	// stateBegun: a copy of a SQL database has begun.
	stateBegun = "begun"
	// stateMoved: it is at the target, and was not verified, or not yet.
	stateMoved = "moved"
	// stateCounted and stateVerified: it is, and was compared.
	stateCounted  = "counted"
	stateVerified = "verified"
)

// done reports whether a state asks for no more, if so much was to be verified.
func done(state string, v Verify) bool {
	switch v {
	case VerifyNone:
		return state == stateMoved || state == stateCounted || state == stateVerified
	case VerifyCounts:
		return state == stateCounted || state == stateVerified
	default:
		return state == stateVerified
	}
}

func stateFor(v Verify) string {
	switch v {
	case VerifyNone:
		return stateMoved
	case VerifyCounts:
		return stateCounted
	default:
		return stateVerified
	}
}

// An entry is what the journal says of an item. Times are epoch milliseconds by
// the primary's clock.
type entry struct {
	State  string `json:"state"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	At     int64  `json:"at"`
	// Print tells the source's files from changed ones.
	Print string `json:"print,omitempty"`
	// AlarmTable says that the object had the table of alarms, and WAL that its
	// file was in WAL mode: the file that comes back is to be the same.
	AlarmTable bool `json:"alarm_table,omitempty"`
	WAL        bool `json:"wal,omitempty"`
	// Waited is the alarm that waited for the object at the target.
	Waited *int64 `json:"waited,omitempty"`
	// Body is what a bucket cannot keep of a body.
	Body *bodyFacts `json:"body,omitempty"`
}

// A Header is what the journal says of a whole move.
type Header struct {
	// Direction is "to-central"; a move to a directory keeps its journal there.
	Direction string `json:"direction"`
	Host      string `json:"host"`
	Path      string `json:"path"`
	State     string `json:"state"` // "running", "partly" or "done"
	StartedAt int64  `json:"started_at"`
	EndedAt   int64  `json:"ended_at,omitempty"`
	// Of the last run that ended.
	Items  int64 `json:"items"`
	Bytes  int64 `json:"bytes"`
	Failed int64 `json:"failed"`
}

// States of a header.
const (
	Running = "running"
	Partly  = "partly"
	Done    = "done"
)

// headerItem is the item of the header.
const headerItem = ""

// A journal is that of one plan in a store.
type journal struct {
	store *kv.Store
	plan  string
}

// sourceID names a directory on a machine: 64 hex digits.
func sourceID(host, path string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + path))
	return hex.EncodeToString(sum[:])
}

// resolved is the path of a file or directory without links.
func resolved(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	return abs, err
}

// moveID is the id in the mode marker: the same for each run of a plan.
func moveID(plan string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(plan)).String()
}

func (j journal) key(item string) []byte { return tuple.MustEncode(JournalPrefix, j.plan, item) }

// add adds an entry to a plan.
func (j journal) add(p *kv.Plan, item string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic("migrate: " + err.Error()) // of texts and numbers only
	}
	p.Set(j.key(item), string(text), 0)
}

// set writes entries in one commit.
func (j journal) set(ctx context.Context, entries map[string]any) error {
	if len(entries) == 0 {
		return nil
	}
	p := kv.NewPlan()
	for item, value := range entries {
		j.add(p, item, value)
	}
	if err := repeat(ctx, func() error { _, err := j.store.Commit(ctx, p); return err }); err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}

// Something whose answer is lost is tried again after a pause, which grows.
const firstRepeat, lastRepeat = 10 * time.Millisecond, 3 * time.Second

// repeat tries what may be done twice again when its answer is lost.
func repeat(ctx context.Context, f func() error) error {
	for wait := firstRepeat; ; wait *= 4 {
		err := f()
		if !lost(err) || wait >= lastRepeat {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// lost reports whether the answer to a batch is what failed.
func lost(err error) bool {
	e, ok := errors.AsType[*libsql.Error](err)
	return ok && e.Outcome == libsql.Unknown
}

// get reads the entries of items, those that there are.
func (j journal) get(ctx context.Context, items []string) (map[string]entry, error) {
	out := map[string]entry{}
	if j.store == nil || len(items) == 0 {
		return out, nil
	}
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = hex.EncodeToString(j.key(item))
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	res, err := j.store.Decide(ctx, libsql.S(`SELECT k.value, v FROM json_each(?) k JOIN kv ON kv.k = unhex(k.value)`, string(list)))
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	for _, row := range res[0].Rows {
		key, _ := row[0].(string)
		text, _ := row[1].(string)
		i := slices.Index(keys, key)
		if i < 0 {
			continue
		}
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, fmt.Errorf("journal entry of %s: %w", items[i], err)
		}
		out[items[i]] = e
	}
	return out, nil
}

// header reads the header, zero when there is none.
func (j journal) header(ctx context.Context) (h Header, err error) {
	e, ok, err := j.store.Get(ctx, tuple.Key{JournalPrefix, j.plan, headerItem})
	if err == nil && ok {
		err = json.Unmarshal(e.Value, &h)
	}
	if err != nil {
		return h, fmt.Errorf("read the journal: %w", err)
	}
	return h, nil
}

// A Move is what the journal of a store set says of one move.
type Move struct {
	Plan string `json:"plan"`
	// ID is that in the mode marker.
	ID string `json:"id"`
	Header
	// States are the numbers of items by kind and state.
	States map[Kind]map[string]int64 `json:"states"`
}

// Moves lists the moves into a store set.
func Moves(ctx context.Context, s *kv.Store) ([]Move, error) {
	prefix := tuple.MustEncode(JournalPrefix)
	var moves []Move
	plans, err := planNames(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, plan := range plans {
		m := Move{Plan: plan, ID: moveID(plan), States: map[Kind]map[string]int64{}}
		if m.Header, err = (journal{s, plan}).header(ctx); err != nil {
			return nil, err
		}
		for _, k := range Kinds {
			lo := append(slices.Clone(prefix), tuple.MustEncode(plan, string(k)+"/")...)
			lo = lo[:len(lo)-1] // without the end of the string: what begins with it
			res, err := s.Look(ctx, libsql.S(`SELECT json_extract(v, '$.state'), count(*) FROM kv WHERE k >= ? AND k < ? GROUP BY 1`, lo, tuple.RangeEnd(lo)))
			if err != nil {
				return nil, fmt.Errorf("read the journal: %w", err)
			}
			for _, row := range res[0].Rows {
				state, _ := row[0].(string)
				n, _ := row[1].(int64)
				if m.States[k] == nil {
					m.States[k] = map[string]int64{}
				}
				m.States[k][state] = n
			}
		}
		moves = append(moves, m)
	}
	return moves, nil
}

// planNames lists the plans that have a journal, a step over each.
func planNames(ctx context.Context, s *kv.Store) (plans []string, err error) {
	start := tuple.Key{JournalPrefix}
	for {
		var next string
		for e, err := range s.List(ctx, kv.ListOptions{Prefix: tuple.Key{JournalPrefix}, Start: start, Limit: 1}) {
			if err != nil {
				return nil, fmt.Errorf("list journals: %w", err)
			}
			if len(e.Key) > 1 {
				next, _ = e.Key[1].(string)
			}
		}
		if next == "" {
			return plans, nil
		}
		plans = append(plans, next)
		start = tuple.Key{JournalPrefix, next + "\x00"}
	}
}
