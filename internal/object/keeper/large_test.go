package keeper_test

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

var largeBytes = flag.Int64("keeper.large", 24<<20, "size of the large object, in bytes")

// dirBlobs are files in a directory.
type dirBlobs string

func (d dirBlobs) path(ref string) string { return filepath.Join(string(d), filepath.FromSlash(ref)) }

func (d dirBlobs) Put(_ context.Context, ref string, r io.Reader, _ int64) error {
	if err := os.MkdirAll(filepath.Dir(d.path(ref)), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(d.path(ref), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.Close()
}

func (d dirBlobs) Get(_ context.Context, ref string) (io.ReadCloser, error) {
	return os.Open(d.path(ref))
}

func (d dirBlobs) Delete(_ context.Context, ref string) error { return os.Remove(d.path(ref)) }

func (d dirBlobs) List(context.Context, string, string) ([]string, string, error) {
	return nil, "", nil
}

// peak samples the memory that Go's heap takes until stop is called.
func peak() (stop func() uint64) {
	runtime.GC()
	var most atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapInuse))
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(done); <-ended; return most.Load() }
}

// TestLargeObject: created, handed over, merged and brought back in bounded
// memory.
func TestLargeObject(t *testing.T) {
	f := newFixture(t, libsqltest.File, keeper.Config{})
	blobs := dirBlobs(t.TempDir())
	f.k = keeper.New(keeper.Config{StoreID: storeID, Dir: f.Dir}, f.store, blobs, slog.New(slog.DiscardHandler))
	f.Reader.Blobs = blobs
	stop := peak()

	phase := time.Now()
	done := func(what string) {
		t.Logf("%-28s %v", what, time.Since(phase).Round(time.Millisecond))
		phase = time.Now()
	}
	a := f.mirror(mirror.Config{MaxEntry: 8 << 30})
	commit := func() {
		t.Helper()
		e, err := a.Capture()
		f.must(err)
		defer e.Close()
		if e.Data != nil {
			t.Fatal("a large entry in memory")
		}
		base := f.head("0a")
		c := objlog.Commit{
			Class: "C", ID: "0a", Base: base, CommitID: f.commitID(), Epoch: 1, Post: e.Post.Checksum, PageSize: e.PageSize, Pages: e.Pages,
			Ref: objlog.Ref(storeID, "C", "0a", base.TXID+1, 1), Size: e.Size, Snapshot: base.Checksum == 0,
		}
		f.must(blobs.Put(t.Context(), c.Ref, e.Open(), e.Size))
		f.apply(c.Add)
		f.must(a.Confirm(e.Post))
	}
	f.exec(a, "CREATE TABLE t(id INTEGER PRIMARY KEY, a)")
	const piece = 1 << 20
	size := *largeBytes
	if testing.Short() {
		size /= 3
	}
	for range size / piece {
		f.exec(a, "INSERT INTO t(a) VALUES(randomblob(?))", piece-100)
	}
	commit()
	done("created")
	for range 2 {
		f.exec(a, "UPDATE t SET a = randomblob(?) WHERE id % 3 > 0", piece-100)
		commit()
	}
	done("rewritten twice")
	b := f.mirror(mirror.Config{})
	f.must(f.CatchUp(t.Context(), b, "C", "0a", 3))
	f.must(b.Verify())
	f.must(b.Discard())
	done("handed over")
	f.must(f.k.Round(t.Context()))
	if n := f.count(`SELECT count(*) FROM obj_log WHERE level = 9 AND ref IS NOT NULL`); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	done("snapshot")
	f.burst("0a", 61)
	f.must(f.k.Compact(t.Context(), "C", "0a", 64))
	_, err := f.Materialise(t.Context(), "C", "0a", 64, io.Discard)
	f.must(err)
	done("materialised")
	if most := stop(); most > 64<<20 {
		t.Errorf("the heap took %d MB", most>>20)
	} else {
		t.Logf("the heap took %d MB", most>>20)
	}
}
