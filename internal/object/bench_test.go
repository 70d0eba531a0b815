package object

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// benchmarkEvents runs one kind of event on a number of objects from 16
// clients.
func benchmarkEvents(b *testing.B, place libsqltest.Place, path string, objects int) {
	db := place.Open(b)
	store := kv.New(db)
	if err := store.Init(b.Context(), objlog.Schema...); err != nil {
		b.Fatal(err)
	}
	cfg := testConfig(b, "bench")
	cfg.Resident = 2 * objects
	cfg.Blobs = nil // no entry is that large
	rt := New(cfg, store, slog.New(slog.DiscardHandler))
	defer rt.Stop(context.Background())
	for name, class := range testClasses {
		if err := rt.Register(name, Class{New: class, Env: testEnv{rt: rt}}); err != nil {
			b.Fatal(err)
		}
	}
	ns := rt.Namespace("Counter")
	var n atomic.Int64
	trips := db.Trips()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			w := httptest.NewRecorder()
			id := ns.ID(itoa(int(n.Add(1)) % objects))
			ns.Get(id).ServeHTTP(w, httptest.NewRequest("POST", "http://test"+path, nil))
			if w.Code != 200 {
				b.Errorf("%d %s", w.Code, w.Body)
			}
		}
	})
	b.ReportMetric(float64(db.Trips()-trips)/float64(b.N), "trips/op")
}

func BenchmarkAdd500ObjectsFile(b *testing.B) { benchmarkEvents(b, libsqltest.File(b), "/add", 500) }
func BenchmarkAdd1ObjectFile(b *testing.B)    { benchmarkEvents(b, libsqltest.File(b), "/add", 1) }
func BenchmarkGet1ObjectFile(b *testing.B)    { benchmarkEvents(b, libsqltest.File(b), "/get", 1) }
func BenchmarkAdd500ObjectsWire(b *testing.B) { benchmarkEvents(b, libsqltest.Wire(b), "/add", 500) }

// BenchmarkDisk is the yardstick: transactions one after the other.
func BenchmarkDisk(b *testing.B) {
	s := kv.New(libsqltest.File(b).Open(b))
	if err := s.Init(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Commit(b.Context(), kv.NewPlan().Set([]byte("a"), "1", 0)); err != nil {
			b.Fatal(err)
		}
	}
}
