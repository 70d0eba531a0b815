package keeper_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

var (
	randomSeed  = flag.Uint64("keeper.seed", 0, "seed of the random test; 0 draws one")
	randomSteps = flag.Int("keeper.steps", 0, "steps of the random test; 0 is a few")
)

// TestRandom: three replicas write objects in turn, of which some have not looked
// at the head, some commits get lost, or their answers, or arrive when the lease
// has ended. Whatever is merged, removed and collected in between, no stale
// commit is accepted, each mirror finds its way to the head, byte for byte, and
// every position that the log leads to is what it was.
func TestRandom(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	steps := *randomSteps
	if steps == 0 {
		switch steps = 300; {
		case os.Getenv("DWK_TEST_LONG") != "":
			steps = 5000
		case testing.Short():
			steps = 100
		}
	}
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			t.Logf("to repeat: -keeper.seed=%d -keeper.steps=%d", seed, steps)
			w := newWorld(t, place, seed)
			for range steps {
				w.step()
			}
			w.checkAll()
			t.Logf("%v", w.stats)
		})
	}
}

// A world is some objects, their mirrors on three replicas, and what they were
// at each commit.
type world struct {
	*fixture
	r       *rand.Rand
	limit   int64
	objects []*object
	stats   map[string]int
}

type object struct {
	id      string
	mirrors [3]*replica
	late    []late
	was     map[uint64]string // hash at each commit with pages, "" for none
	changes []uint64          // commits in was, rising
}

// at returns what the object was at a commit.
func (o *object) at(txid uint64) string {
	i, ok := slices.BinarySearch(o.changes, txid)
	if !ok {
		i--
	}
	if i < 0 {
		return ""
	}
	return o.was[o.changes[i]]
}

func (o *object) note(txid uint64, sum string) {
	o.was[txid] = sum
	o.changes = append(o.changes, txid)
}

func newWorld(t *testing.T, place func(testing.TB) libsqltest.Place, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{r: r, limit: 6 << 10, stats: map[string]int{}}
	w.fixture = newFixture(t, place, keeper.Config{InlineLimit: w.limit, FullSize: 150 << 10})
	for i := range 3 {
		o := &object{id: fmt.Sprintf("%02x", i), was: map[uint64]string{}}
		for j := range o.mirrors {
			o.mirrors[j] = &replica{Mirror: w.mirror(mirror.Config{
				PageSize: []int{4096, 1024, 512}[i], CacheBytes: 100 << 10, EntryMemory: 3000, MaxEntry: 64 << 20, CheckpointBytes: 2 << 20,
			})}
		}
		w.objects = append(w.objects, o)
	}
	return w
}

func (w *world) step() {
	w.Helper()
	o := w.objects[w.r.IntN(len(w.objects))]
	if len(o.changes) > 0 && w.head(o.id).TXID == 0 {
		w.stats["buried"]++
		o.was, o.changes = map[uint64]string{}, nil
	}
	switch n := w.r.IntN(100); {
	case n < 55:
		w.write(o, o.mirrors[w.r.IntN(len(o.mirrors))])
	case n < 60:
		w.stats["empty"]++
		w.grow(o, func() { w.empty(o.id) })
	case n < 70:
		if w.head(o.id).Exists() {
			w.stats["burst"]++
			w.grow(o, func() { w.burst(o.id, 1+w.r.IntN([]int{80, 80, 2000}[w.r.IntN(3)])) })
		}
	case n < 72:
		w.delete(o)
	case n < 75:
		w.restore(o)
	case n < 92:
		w.stats["shift"]++
		w.shift(time.Duration(w.r.Int64N(int64([]time.Duration{time.Minute, 20 * time.Minute, 3 * time.Hour}[w.r.IntN(3)]))))
		if w.r.IntN(2) == 0 {
			w.must(w.k.Trim(w.Context(), "C", o.id))
		}
	case n < 96:
		w.stats["round"]++
		w.must(w.k.Round(w.Context()))
	case n < 97:
		w.stats["days"]++
		w.shift(25 * time.Hour)
	default:
		w.deliver(o)
		w.check(o)
	}
}

// grow does something that adds to a log, and has what ends with it merged,
// mostly.
func (w *world) grow(o *object, add func()) {
	w.Helper()
	before := w.head(o.id).TXID
	add()
	after := w.head(o.id).TXID
	if w.r.IntN(8) == 0 {
		return // the replica died before it could merge
	}
	// A replica may die between the upload of a merge and its row.
	w.blobs.crash = w.r.IntN(4) == 0
	defer func() { w.blobs.crash = false }()
	for n := before/64*64 + 64; n <= after; n += 64 {
		err := w.k.Compact(w.Context(), "C", o.id, n)
		if errors.Is(err, errCrash) {
			w.stats["crash"]++
			return
		}
		w.must(err)
	}
}

func (w *world) catchUp(o *object, m *replica) {
	w.Helper()
	h := w.head(o.id)
	m.head = h
	if at := m.Position(); at.TXID > h.TXID || at.TXID == h.TXID && at.Checksum != h.Checksum {
		w.must(m.Discard()) // the object's tombstone is gone, and it began anew
	}
	at := m.Position().TXID
	if w.r.IntN(2) == 0 {
		tail, err := readTail(w.Context(), w.store, o.id, at)
		w.must(err)
		if len(tail) > 0 && tail[0].MinTXID > at+1 {
			w.Fatalf("tail behind %d begins at %d", at, tail[0].MinTXID)
		}
		if err := w.Apply(w.Context(), m.Mirror, tail); err != nil && !errors.Is(err, mirror.ErrDiscarded) {
			w.Fatal(err)
		}
		w.stats["tail"] += len(tail)
	}
	err := w.CatchUp(w.Context(), m.Mirror, "C", o.id, h.TXID)
	if errors.Is(err, mirror.ErrDiverged) && at < h.TXID {
		// A mirror from before a tombstone that is gone.
		w.stats["rebuilt"]++
		w.must(m.Discard())
		err = w.CatchUp(w.Context(), m.Mirror, "C", o.id, h.TXID)
	}
	w.must(err)
	if at := m.Position(); at.TXID != h.TXID || at.Checksum != h.Checksum {
		w.Fatalf("caught up to %s, head is %d/%016x", at, h.TXID, h.Checksum)
	}
	if got := w.sum(m.Mirror); got != o.at(h.TXID) {
		w.Fatalf("object %s at %d is not what it was", o.id, h.TXID)
	}
}

func (w *world) delete(o *object) {
	w.Helper()
	h := w.head(o.id)
	if !h.Exists() {
		return
	}
	w.stats["delete"]++
	d := objlog.Delete{Class: "C", ID: o.id, Base: h, CommitID: w.commitID(), Epoch: 1}
	w.grow(o, func() { w.apply(d.Add) })
	o.note(d.TXID(), "")
	if got := w.head(o.id); got.Exists() || got.TXID != d.TXID() || got.DeletedAt == 0 || got.Checksum != 0 {
		w.Fatalf("deleted: %+v", got)
	}
	if w.r.IntN(3) == 0 {
		w.shift(25 * time.Hour)
		w.must(w.k.Round(w.Context()))
		if got := w.head(o.id); got != (objlog.Head{}) {
			w.Fatalf("a day after its deletion: %+v", got)
		}
	}
}

// restore brings an object back to a position, as a new commit.
func (w *world) restore(o *object) {
	w.Helper()
	positions := w.positions(o)
	if len(positions) == 0 {
		return
	}
	p := positions[w.r.IntN(len(positions))]
	if !p.Exists {
		return
	}
	var file, snapshot bytes.Buffer
	_, err := w.Materialise(w.Context(), "C", o.id, p.TXID, &file)
	w.must(err)
	c := objlog.Commit{Class: "C", ID: o.id, Base: w.head(o.id), CommitID: w.commitID(), Epoch: 1, Snapshot: true}
	h, err := mirror.EncodeSnapshot(&snapshot, bytes.NewReader(file.Bytes()), int64(file.Len()), c.TXID())
	w.must(err)
	c.Post, c.PageSize, c.Pages, c.Data = h.Post, h.PageSize, h.Pages, snapshot.Bytes()
	if len(c.Data) > int(w.limit) {
		c.Ref, c.Size, c.Data = objlog.Ref(storeID, "C", o.id, c.TXID(), 1), int64(len(c.Data)), nil
		w.must(w.blobs.Put(w.Context(), c.Ref, &snapshot, c.Size))
	}
	w.stats["restore"]++
	sum := o.at(p.TXID)
	w.grow(o, func() { w.apply(c.Add) })
	o.note(c.TXID(), sum)
}

func (w *world) positions(o *object) []objlog.Position {
	w.Helper()
	var all []objlog.Position
	for p, err := range objlog.Positions(w.Context(), w.store, "C", o.id) {
		w.must(err)
		all = append(all, p)
	}
	return all
}

// check compares what the log leads to with what it was.
func (w *world) check(o *object) {
	w.Helper()
	h := w.head(o.id)
	positions := w.positions(o)
	if h.TXID > 0 && (len(positions) == 0 || positions[len(positions)-1].TXID != h.TXID) {
		w.Fatalf("no position at the head %d", h.TXID)
	}
	w.stats["positions"] += len(positions)
	last := "none"
	for i, p := range positions {
		if want := o.at(p.TXID); p.Exists != (want != "") {
			w.Fatalf("position %+v", p)
		}
		// Of many positions without changes the first ones will do, and of
		// very many some.
		if want := o.at(p.TXID); i < len(positions)-1 && (want == last && w.r.IntN(20) > 0 || w.r.IntN(len(positions)) > 100) {
			continue
		}
		last = o.at(p.TXID)
		got, err := w.materialise(o.id, p.TXID)
		w.must(err)
		if got != last {
			w.Fatalf("position %d of object %s is not what it was", p.TXID, o.id)
		}
	}
	cold := mirror.New(filepath.Join(w.TempDir(), "cold.db"), mirror.Config{})
	w.must(w.CatchUp(w.Context(), cold, "C", o.id, h.TXID))
	w.must(cold.Verify())
	if _, pages := cold.Size(); pages > 0 {
		for row, err := range cold.Query(w.Context(), "PRAGMA integrity_check") {
			w.must(err)
			if row.Values[0] != "ok" {
				w.Fatal(row.Values)
			}
		}
	}
	w.must(cold.Discard())
	// No row without its file.
	for _, row := range w.sql(`SELECT ref FROM obj_log WHERE ref IS NOT NULL`) {
		if _, err := w.blobs.Get(w.Context(), row[0].(string)); err != nil {
			w.Fatal(err)
		}
	}
}

// checkAll checks everything, and that what is garbage goes.
func (w *world) checkAll() {
	w.Helper()
	for _, o := range w.objects {
		w.deliver(o)
		w.check(o)
		for _, m := range o.mirrors {
			w.catchUp(o, m)
			w.must(m.Verify())
		}
	}
	w.must(w.k.Round(w.Context()))
	w.shift(48 * time.Hour)
	w.must(w.k.Round(w.Context())) // what retention removes now
	w.shift(48 * time.Hour)
	w.must(w.k.Round(w.Context()))
	if n, rows := len(w.blobs.files), w.count(`SELECT count(DISTINCT ref) FROM obj_log`); n != rows {
		w.Errorf("%d files, %d are named", n, rows)
	}
	for _, o := range w.objects {
		w.check(o)
	}
	if _, err := os.Stat(w.Dir); err != nil {
		w.Error(err)
	}
	left, err := os.ReadDir(w.Dir)
	if err != nil || len(left) > 0 {
		w.Errorf("temporary files are left: %v %v", left, err)
	}
}
