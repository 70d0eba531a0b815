package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// eachPlace runs a test on a file and over the wire.
func eachPlace(t *testing.T, cfg keeper.Config, test func(t *testing.T, f *fixture)) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) { test(t, newFixture(t, place, cfg)) })
	}
}

// fill makes an object of n commits that each write some bytes.
func (f *fixture) fill(id string, n, bytes int) *mirror.Mirror {
	f.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	m := f.mirror(mirror.Config{PageSize: 1024, EntryMemory: 1 << 20})
	f.exec(m, "CREATE TABLE t(id INTEGER PRIMARY KEY, a)")
	f.commit(m, id, 1<<20)
	for i := 1; i < n; i++ {
		f.exec(m, "INSERT INTO t VALUES(?1, ?2) ON CONFLICT DO UPDATE SET a = excluded.a", i%7, noise(r, bytes))
		f.commit(m, id, 1<<20)
	}
	return m
}

func (f *fixture) levels(id string) map[int]int {
	f.Helper()
	n := map[int]int{}
	for _, row := range f.sql(`SELECT level, count(*) FROM obj_log WHERE class = 'C' AND id = ? GROUP BY level`, id) {
		n[int(row[0].(int64))] = int(row[1].(int64))
	}
	return n
}

// TestMergeTakesTwoTrips: in 64 commits, whatever the store.
func TestMergeTakesTwoTrips(t *testing.T) {
	eachPlace(t, keeper.Config{}, func(t *testing.T, f *fixture) {
		f.fill("0a", 64, 100)
		var trips atomic.Int64
		f.must(f.k.Compact(libsql.CountTrips(t.Context(), &trips), "C", "0a", 64))
		if n := trips.Load(); n > 2 {
			t.Errorf("%d round trips", n)
		}
		if got := f.levels("0a"); got[0] != 64 || got[1] != 1 || got[9] != 1 {
			t.Errorf("rows by level: %v", got)
		}
		trips.Store(0)
		f.must(f.k.Compact(libsql.CountTrips(t.Context(), &trips), "C", "0a", 64))
		if n := trips.Load(); n > 1 {
			t.Errorf("%d round trips to see that it is done", n)
		}
	})
}

// TestSnapshotWhenBytesExceedTheLast: not because of a count.
func TestSnapshotWhenBytesExceedTheLast(t *testing.T) {
	eachPlace(t, keeper.Config{}, func(t *testing.T, f *fixture) {
		f.fill("0a", 2, 10)
		f.burst("0a", 1000)
		f.must(f.k.Round(t.Context()))
		if got := f.levels("0a"); got[9] != 1 || got[1] != 15 {
			t.Errorf("many small commits: rows by level %v", got)
		}
		m := f.mirror(mirror.Config{})
		f.must(f.CatchUp(t.Context(), m, "C", "0a", 1002))
		f.exec(m, "INSERT INTO t VALUES(99, randomblob(100000))")
		f.commit(m, "0a", 1<<20)
		f.must(f.k.Round(t.Context()))
		if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 9 AND max_txid = 1003`); n != 1 {
			t.Error("a large commit: no snapshot")
		}
		path, err := objlog.Path(t.Context(), f.store, "C", "0a", 0, 1003)
		if err != nil || len(path) != 1 {
			t.Errorf("path of %d rows, %v", len(path), err)
		}
	})
}

// TestRetention: every position for a while, then one an hour.
func TestRetention(t *testing.T) {
	eachPlace(t, keeper.Config{}, func(t *testing.T, f *fixture) {
		txids := func() []uint64 {
			var all []uint64
			for p, err := range objlog.Positions(t.Context(), f.store, "C", "0a") {
				f.must(err)
				all = append(all, p.TXID)
			}
			return all
		}
		m := f.fill("0a", 64, 50)
		was := map[uint64]string{}
		for i := range uint64(128) { // an hour has 16 commits
			f.exec(m, "INSERT INTO t VALUES(?1, ?1) ON CONFLICT DO UPDATE SET a = ?1 + a", int(i%5)+100)
			f.commit(m, "0a", 1<<20)
			was[m.Position().TXID] = f.sum(m)
			f.shift(time.Hour / 16)
		}
		for n := uint64(64); n <= 192; n += 64 {
			f.must(f.k.Compact(t.Context(), "C", "0a", n))
		}
		if got := txids(); len(got) != 192 {
			t.Fatalf("%d positions before anything is removed", len(got))
		}
		f.must(f.k.Trim(t.Context(), "C", "0a"))
		// The first block is of one moment, eight hours ago; of the others the way
		// to the last full hour stays.
		for _, n := range txids() {
			if n > 1 && n < 64 {
				t.Errorf("position %d is kept", n)
			}
		}
		now := f.count(`SELECT ` + kv.Now)
		hours := map[int64]bool{}
		for p, err := range objlog.Positions(t.Context(), f.store, "C", "0a") {
			f.must(err)
			if int64(now)-p.At < (24 * time.Hour).Milliseconds() {
				hours[p.At/time.Hour.Milliseconds()] = true
			}
			if want, ok := was[p.TXID]; ok {
				if sum, err := f.materialise("0a", p.TXID); err != nil || sum != want {
					t.Errorf("position %d is not what it was: %v", p.TXID, err)
				}
			}
		}
		if len(hours) < 8 {
			t.Errorf("%d hours have a position", len(hours))
		}

		// Newer ones all stay.
		for range 64 {
			f.exec(m, "INSERT INTO t VALUES(200, 1) ON CONFLICT DO UPDATE SET a = a + 1")
			f.commit(m, "0a", 1<<20)
		}
		f.must(f.k.Compact(t.Context(), "C", "0a", 256))
		f.shift(14 * time.Minute)
		f.must(f.k.Trim(t.Context(), "C", "0a"))
		for n := uint64(193); n <= 256; n++ {
			if !slices.Contains(txids(), n) {
				t.Fatalf("position %d of the last quarter of an hour is gone: %v", n, txids())
			}
		}
		// Also beneath a snapshot that is new.
		f.exec(m, "INSERT INTO t VALUES(300, randomblob(100000))")
		f.commit(m, "0a", 1<<20)
		f.must(f.k.Round(t.Context()))
		if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 9 AND max_txid = 257`); n != 1 {
			t.Error("no snapshot")
		}
		for n := uint64(193); n <= 257; n++ {
			if !slices.Contains(txids(), n) {
				t.Fatalf("position %d beneath a new snapshot is gone: %v", n, txids())
			}
		}
		f.shift(3 * 24 * time.Hour)
		f.must(f.k.Trim(t.Context(), "C", "0a"))
		if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 0`); n != 0 {
			t.Errorf("%d rows of level 0 after days", n)
		}
		if got := txids(); got[len(got)-1] != 257 {
			t.Errorf("positions %v", got)
		}
	})
}

// TestRetentionBySize: a busy object keeps less; young rows keep their commit
// ids, which decide what became of a commit.
func TestRetentionBySize(t *testing.T) {
	eachPlace(t, keeper.Config{FullSize: 200 << 10}, func(t *testing.T, f *fixture) {
		m := f.fill("0a", 256, 900)
		for n := uint64(64); n <= 256; n += 64 {
			f.must(f.k.Compact(t.Context(), "C", "0a", n))
		}
		f.must(f.k.Trim(t.Context(), "C", "0a"))
		const held = `SELECT coalesce(sum(size), 0) FROM obj_log WHERE level = 0 AND data IS NOT NULL`
		if n := f.count(held); n > 200<<10 || n == 0 {
			t.Errorf("level 0 holds %d bytes", n)
		}
		if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 0 AND commit_id IS NOT NULL`); n != 256 {
			t.Errorf("%d commit ids of two minutes", n)
		}
		tail, err := readTail(t.Context(), f.store, "0a", 5)
		if err != nil || len(tail) != 0 {
			t.Errorf("rows without data in the tail: %d, %v", len(tail), err)
		}
		for p, err := range objlog.Positions(t.Context(), f.store, "C", "0a") {
			f.must(err)
			if _, err := f.materialise("0a", p.TXID); err != nil {
				t.Error(err)
			}
		}
		for at := range uint64(4) { // from anywhere there is a way
			behind := f.mirror(mirror.Config{})
			f.must(f.CatchUp(t.Context(), behind, "C", "0a", 256-at))
			f.must(f.CatchUp(t.Context(), behind, "C", "0a", 256))
			if f.sum(behind) != f.sum(m) {
				t.Error("not the head")
			}
		}
		f.shift(3 * time.Minute)
		f.must(f.k.Trim(t.Context(), "C", "0a"))
		if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 0`); n == 256 {
			t.Error("old rows without data stay")
		}
	})
}

// offload puts the file of a commit under a lease and does not commit it.
func (f *fixture) offload(id string, ttl time.Duration) (string, lease.Held) {
	f.Helper()
	p := kv.NewPlan()
	a := lease.Attempt{Class: "C", ID: id, Holder: uuid.NewString(), TTL: ttl, DeadlineMs: f.store.Clock().Add(time.Minute).UnixMilli()}
	shown, err := a.Add(p)
	f.must(err)
	v, err := f.store.Commit(f.Context(), p)
	f.must(err)
	info, ok, err := lease.Read("C", id, v.Results[shown])
	f.must(err)
	if !ok {
		f.Fatal("no lease")
	}
	ref := objlog.Ref(storeID, "C", id, 65, info.Stamp)
	f.must(f.blobs.Put(f.Context(), ref, bytes.NewReader([]byte("x")), 1))
	return ref, lease.Held{Class: "C", ID: id, Holder: a.Holder, Stamp: info.Stamp}
}

func (f *fixture) has(ref string) bool {
	body, err := f.blobs.Get(f.Context(), ref)
	if err == nil {
		body.Close()
	}
	return err == nil
}

// TestFilesThatNothingNames: they go after a day, while nobody can want them.
func TestFilesThatNothingNames(t *testing.T) {
	eachPlace(t, keeper.Config{}, func(t *testing.T, f *fixture) {
		f.fill("0a", 2, 50)
		ref, held := f.offload("0a", time.Hour)
		foreign := objlog.Ref("other", "C", "0a", 65, 0)
		f.blobs.files[foreign] = []byte("theirs")
		f.blobs.files["objects/"+storeID+"/C/notes.txt"] = []byte("not a log file")
		// A row that a copied store set brought along names a file of the other.
		f.sql(`INSERT INTO obj_garbage VALUES (?, 0)`, foreign)

		round := func(days int) {
			t.Helper()
			f.shift(time.Duration(days) * 24 * time.Hour)
			f.must(f.k.Round(t.Context()))
		}
		round(0)
		round(3)
		round(3)
		if !f.has(ref) {
			t.Fatal("a file that the holder of the lease may still name is gone")
		}
		if ok, err := held.Release(t.Context(), f.store); err != nil || !ok {
			t.Fatal(ok, err)
		}
		round(0)
		f.shift(23 * time.Hour)
		f.must(f.k.Round(t.Context()))
		if !f.has(ref) {
			t.Error("it is gone before a day has passed")
		}
		round(1)
		if f.has(ref) {
			t.Error("it is still there")
		}
		if len(f.blobs.files) != 2 || len(f.blobs.deleted) != 1 {
			t.Errorf("files of others: %d are left, deleted %v", len(f.blobs.files), f.blobs.deleted)
		}
		if n := f.count(`SELECT count(*) FROM obj_garbage`); n != 0 {
			t.Errorf("%d rows of garbage are left", n)
		}
	})
}

// TestGarbageThatIsNamedAfterAll stays.
func TestGarbageThatIsNamedAfterAll(t *testing.T) {
	eachPlace(t, keeper.Config{InlineLimit: 100}, func(t *testing.T, f *fixture) {
		f.fill("0a", 64, 500)
		f.must(f.k.Compact(t.Context(), "C", "0a", 64))
		var ref string
		for _, row := range f.sql(`SELECT ref FROM obj_log WHERE level = 1`) {
			ref = row[0].(string)
		}
		f.sql(`INSERT INTO obj_garbage VALUES (?, 0)`, ref)
		f.must(f.k.Round(t.Context()))
		if !f.has(ref) {
			t.Error("a file that a row names is gone")
		}
		if n := f.count(`SELECT count(*) FROM obj_garbage`); n != 0 {
			t.Error("it still counts as garbage")
		}
		f.must(f.k.Round(t.Context()))
		if n := f.count(`SELECT count(*) FROM obj_garbage`); n != 0 {
			t.Error("a file that a row names counts as garbage")
		}
	})
}

// A meddler does something between the upload of a merge and its row.
type meddler struct {
	*blobs
	then func()
}

func (m *meddler) Put(ctx context.Context, ref string, r io.Reader, size int64) error {
	err := m.blobs.Put(ctx, ref, r, size)
	m.then()
	return err
}

// TestMergeOfWhatIsGone: a row is added only while its parts are there.
func TestMergeOfWhatIsGone(t *testing.T) {
	eachPlace(t, keeper.Config{}, func(t *testing.T, f *fixture) {
		m := f.fill("0a", 64, 500)
		meddle := &meddler{blobs: f.blobs}
		k := keeper.New(keeper.Config{StoreID: storeID, InlineLimit: 100}, f.store, meddle, slog.New(slog.DiscardHandler))
		meddle.then = func() {
			d := objlog.Delete{Class: "C", ID: "0a", Base: f.head("0a"), CommitID: "end", Epoch: 1}
			f.apply(d.Add)
		}
		f.must(k.Compact(t.Context(), "C", "0a", 64))
		if got := f.levels("0a"); got[0] != 1 || len(got) != 1 {
			t.Errorf("rows of a deleted object: %v", got)
		}
		if len(f.blobs.files) != 0 {
			t.Errorf("%d files are left", len(f.blobs.files))
		}
		f.must(f.CatchUp(t.Context(), m, "C", "0a", 65))
		if _, pages := m.Size(); pages != 0 || m.Position() != (mirror.Position{TXID: 65}) {
			t.Errorf("mirror of a deleted object at %s with %d pages", m.Position(), pages)
		}
		f.exec(m, "CREATE TABLE again(a)")
		f.commit(m, "0a", 1<<20)
		other := f.mirror(mirror.Config{})
		f.must(f.CatchUp(t.Context(), other, "C", "0a", 66))
		if f.sum(other) != f.sum(m) {
			t.Error("the object that began anew differs")
		}
	})
}

// TestTwoKeepersAtOnce, and a writer.
func TestTwoKeepersAtOnce(t *testing.T) {
	eachPlace(t, keeper.Config{InlineLimit: 2 << 10, FullSize: 20 << 10}, func(t *testing.T, f *fixture) {
		other := keeper.New(keeper.Config{StoreID: storeID, InlineLimit: 2 << 10, FullSize: 20 << 10, Dir: f.Dir}, f.store, f.blobs, slog.New(slog.DiscardHandler))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, k := range []*keeper.Keeper{f.k, other} {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := k.Round(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		n := uint64(300)
		if testing.Short() {
			n = 130
		}
		m := f.fill("0a", int(n), 600)
		close(stop)
		wg.Wait()
		f.must(f.k.Round(t.Context()))
		cold := f.mirror(mirror.Config{})
		f.must(f.CatchUp(t.Context(), cold, "C", "0a", n))
		if f.sum(cold) != f.sum(m) {
			t.Error("not the head")
		}
		for p, err := range objlog.Positions(t.Context(), f.store, "C", "0a") {
			f.must(err)
			if _, err := f.materialise("0a", p.TXID); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestService: what was committed is merged in the background.
func TestService(t *testing.T) {
	f := newFixture(t, libsqltest.File, keeper.Config{})
	f.fill("0a", 64, 50)
	f.k.Start()
	defer f.k.Stop()
	for n := range uint64(70) {
		f.k.Committed("C", "0a", n)
	}
	deadline := time.Now().Add(time.Minute)
	for f.levels("0a")[1] == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nothing was merged")
		}
		time.Sleep(5 * time.Millisecond)
	}
	f.k.Stop()
	for range 5000 { // nobody takes them
		f.k.Committed("C", "0a", 128)
	}
}

// TestDamagedFile: what is not what its row says is found.
func TestDamagedFile(t *testing.T) {
	f := newFixture(t, libsqltest.File, keeper.Config{InlineLimit: 100})
	m := f.mirror(mirror.Config{})
	f.exec(m, "CREATE TABLE t(a); INSERT INTO t VALUES(randomblob(30000))")
	f.commit(m, "0a", 100)
	for ref, data := range f.blobs.files {
		for name, damaged := range map[string][]byte{"short": data[:len(data)-1], "long": append(data[:len(data):len(data)], 0), "flipped": func() []byte {
			b := bytes.Clone(data)
			b[len(b)/2] ^= 1
			return b
		}()} {
			f.blobs.files[ref] = damaged
			if _, err := f.materialise("0a", 1); err == nil {
				t.Errorf("%s: no error", name)
			} else if name == "flipped" && !errors.Is(err, mirror.ErrDiverged) {
				t.Error(err)
			}
		}
		f.blobs.files[ref] = data
		if _, err := f.materialise("0a", 1); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.materialise("0a", 7); !errors.Is(err, objlog.ErrGap) {
		t.Errorf("a position that never was: %v", err)
	}
}
