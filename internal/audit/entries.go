package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/cron"
	"github.com/davidwkeith/dwk/internal/holders"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/queue"
)

// marker looks at what says how the store set is written.
func (a *auditor) marker(ctx context.Context) error {
	m, id, err := mode.Read(ctx, a.Store)
	if _, broken := errors.AsType[*libsql.Error](err); broken {
		return err
	}
	if err == nil && (m != "" || id.ID != "" || a.used) { // else no replica has claimed it yet
		err = mode.Check(m, id)
	}
	if err != nil {
		return a.report.add(Finding{Check: StoreMode, Key: mode.ModeKey, Message: err.Error()})
	}
	return nil
}

// entries looks at every entry by itself.
func (a *auditor) entries(ctx context.Context) error {
	t := twice[[]byte]{a: a, look: a.lookEntries}
	for _, prefix := range a.prefixes() {
		lo, hi := bounds(prefix...)
		if len(prefix) == 0 {
			lo, hi = []byte{}, []byte{0xFF, 0xFF}
		}
		err := a.each(ctx, lo, hi, func(keys [][]byte) error {
			a.sum.Entries += int64(len(keys))
			return t.first(ctx, keys)
		})
		if err != nil {
			return err
		}
	}
	if err := t.flush(ctx); err != nil {
		return err
	}
	return a.sequence(ctx)
}

// prefixes are those of the entries that belong to the class, or to anything.
func (a *auditor) prefixes() [][]any {
	if a.Class == "" {
		return [][]any{{}}
	}
	var out [][]any
	for name, k := range kinds {
		if k.class {
			out = append(out, []any{name, a.Class})
		}
	}
	return out
}

// sequence looks for stamps that were not given yet.
func (a *auditor) sequence(ctx context.Context) error {
	res, err := a.Store.Decide(ctx, libsql.S(`SELECT (SELECT seq FROM kv_meta WHERE id = 0), (SELECT max(ver) FROM kv), (SELECT max(epoch) FROM obj_head)`))
	if err != nil {
		return fmt.Errorf("read versionstamps: %w", err)
	}
	row := res[0].Rows[0]
	seq, ver, epoch := num(row[0]), num(row[1]), num(row[2])
	if row[0] == nil || ver <= seq && epoch <= seq {
		return nil
	}
	return a.report.add(Finding{Check: StoreSequence, Message: fmt.Sprintf("the last versionstamp is %d, entries have up to %d and heads up to %d: stamps will be given a second time", seq, ver, epoch)})
}

func (a *auditor) lookEntries(ctx context.Context, keys [][]byte) ([][]Finding, error) {
	found := make([][]Finding, len(keys))
	entries, err := a.read(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		if e, ok := entries[string(k)]; ok {
			found[i] = a.judgeEntry(e)
		}
	}
	return found, nil
}

// judgeEntry looks at one entry.
func (a *auditor) judgeEntry(e stored) []Finding {
	key, err := tuple.Decode(e.key)
	if err != nil {
		return []Finding{{Check: EntryKey, Key: tuple.Key{e.key}, Message: fmt.Sprintf("the key cannot be read: %v", err)}}
	}
	var out []Finding
	add := func(check, format string, args ...any) {
		f := Finding{Check: check, Key: key, Message: fmt.Sprintf(format, args...), same: fmt.Sprint(e.stamp)}
		if k, ok := kindOf(key); ok && k.class && len(key) > 2 {
			f.Class, _ = key[1].(string)
			f.ID, _ = key[len(key)-1].(string)
			if k.id > 0 && k.id < len(key) {
				f.ID, _ = key[k.id].(string)
			}
		}
		out = append(out, f)
	}
	if !e.valid {
		add(EntryValue, "the value is no JSON")
	}
	k, ok := kindOf(key)
	if !ok {
		return out
	}
	if !k.fits(key) {
		add(EntryKey, "the key has not the form of its kind")
	}
	switch {
	case key[0] == lease.Prefix && e.expires == 0:
		add(LeaseEndless, "the lease has no expiry: its object is blocked until an operator ends it")
	case key[0] == lease.Prefix && e.expires-e.nowMs > a.longest(key).Milliseconds():
		add(LeaseLong, "the lease ends in %s, no lease lasts longer than %s", span(e.expires-e.nowMs), a.longest(key))
	case k.expiry == must && e.expires == 0:
		add(EntryEndless, "the entry has no expiry")
	case k.expiry == never && e.expires != 0:
		add(EntryMortal, "the entry expires at %s, and is lost then", instant(e.expires))
	}
	if e.value != nil && k.value != nil {
		if err := k.value(e.value); err != nil {
			add(EntryValue, "the value is not of its kind: %v", err)
		}
	}
	return out
}

const (
	// probeClass is that of the objects that probes make, and probeTTL how long
	// they hold them.
	probeClass = "dwk_probe"
	probeTTL   = 30 * time.Second
)

// longest is the longest that the lease with this key may last.
func (a *auditor) longest(key tuple.Key) time.Duration {
	if len(key) > 1 && key[1] == probeClass {
		return max(a.LeaseTTL, probeTTL)
	}
	return a.LeaseTTL
}

// Whether entries of a kind expire.
type expiry int

const (
	either expiry = iota
	must
	never
)

// A kind is what all entries whose keys begin with the same text have in common.
type kind struct {
	// parts are the types of the key's elements behind the first: "s" a text, "n"
	// a number.
	parts  string
	expiry expiry
	// class tells that the second element is a class, and id is the index of the
	// object's id.
	class bool
	id    int
	// value refuses what is no value of the kind. Members that older hosts leave
	// out are not demanded.
	value func(json.RawMessage) error
}

// claimed is an occurrence of a schedule that was won.
type claimed struct {
	Holder, State  string
	Until, Attempt int64
}

var kinds = map[string]kind{
	lease.Prefix:          {parts: "ss", expiry: must, class: true, id: 2, value: has[lease.Value]("holder")},
	alarm.SlotPrefix:      {parts: "ss", expiry: never, class: true, id: 2, value: has[alarm.Slot]("epochMs")},
	alarm.DuePrefix:       {parts: "sns", expiry: never, class: true, id: 3, value: has[alarm.Slot]("epochMs")},
	alarm.DeadPrefix:      {parts: "ss", expiry: must, class: true, id: 2, value: has[alarm.Dead]("due")},
	alarm.RunPrefix:       {parts: "ssn", expiry: must, class: true, id: 2, value: has[alarm.Run]("due", "outcome")},
	queue.PrefixDue:       {parts: "sns", expiry: never, value: has[message]("body")},
	queue.PrefixDead:      {parts: "sns", expiry: must, value: has[message]("body")},
	queue.PrefixPause:     {parts: "s", expiry: never},
	cron.PrefixOccurrence: {parts: "sn", expiry: must, value: has[claimed]("holder", "state", "until")},
	cron.PrefixLast:       {parts: "s", expiry: never, value: has[map[string]any]()},
	cron.PrefixRun:        {parts: "snn", expiry: must, value: has[cron.Run]()},
	cron.PrefixPause:      {parts: "s", expiry: never},
	cron.PrefixRequest:    {parts: "ss", expiry: must},
	replicaPrefix:         {parts: "s", expiry: must},
	"dwk_drain":           {parts: "s", expiry: must},
	holders.Prefix:        {parts: "sss", expiry: must, class: true, id: 2, value: has[holders.Entry]("sockets")},
}

func kindOf(key tuple.Key) (kind, bool) {
	if len(key) == 0 {
		return kind{}, false
	}
	name, _ := key[0].(string)
	k, ok := kinds[name]
	return k, ok
}

// fits tells whether a key has the form of the kind.
func (k kind) fits(key tuple.Key) bool {
	if len(key) != len(k.parts)+1 {
		return false
	}
	for i, part := range k.parts {
		ok := false
		switch part {
		case 's':
			_, ok = key[i+1].(string)
		case 'n':
			_, ok = key[i+1].(float64)
		}
		if !ok {
			return false
		}
	}
	return true
}

// has returns a check that a value decodes into a T and has the members.
func has[T any](names ...string) func(json.RawMessage) error {
	return func(v json.RawMessage) error {
		var t T
		if err := json.Unmarshal(v, &t); err != nil {
			return err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(v, &members); err != nil {
			return err
		}
		for _, n := range names {
			if members[n] == nil {
				return fmt.Errorf("it has no %s", n)
			}
		}
		return nil
	}
}

// A message is what the value of one holds, as far as it is looked at.
type message struct {
	Attempts int    `json:"attempts"`
	Claim    string `json:"claim"`
}

// live is how statements test an entry of kv by another name.
func live(alias string) string {
	return `(` + alias + `.expires_at IS NULL OR ` + alias + `.expires_at > ` + kv.Now + `)`
}
