package object

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// benchRuntime is a runtime with the classes of the tests.
func benchRuntime(b *testing.B, db *libsql.DB, objects int) *Runtime {
	b.Helper()
	store := kv.New(db)
	if err := store.Init(b.Context(), objlog.Schema...); err != nil {
		b.Fatal(err)
	}
	cfg := testConfig(b, "bench")
	cfg.Resident = 2 * objects
	cfg.Blobs = nil // no entry is that large
	rt := New(cfg, store, slog.New(slog.DiscardHandler))
	b.Cleanup(func() { rt.Stop(context.Background()) })
	for name, class := range testClasses {
		if err := rt.Register(name, Class{New: class, Env: testEnv{rt: rt}}); err != nil {
			b.Fatal(err)
		}
	}
	return rt
}

// benchmarkEvents runs one kind of event on a number of objects from 16
// clients.
func benchmarkEvents(b *testing.B, place libsqltest.Place, path string, objects int) {
	db := place.Open(b)
	ns := benchRuntime(b, db, objects).Namespace("Counter")
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

// BenchmarkWireBesideFile runs the same events on a store in a file and on one
// over the wire, in turn. "x" is the time over the wire by that on a file, by
// their medians; both have as many round trips.
func BenchmarkWireBesideFile(b *testing.B) {
	for _, path := range []string{"/add", "/get"} {
		b.Run(path[1:], func(b *testing.B) {
			places := []libsqltest.Place{libsqltest.File(b), libsqltest.Wire(b)}
			var took [2][]time.Duration
			var trips [2]uint64
			var runs []func(n int)
			for i, place := range places {
				db := place.Open(b)
				ns := benchRuntime(b, db, 100).Namespace("Counter")
				runs = append(runs, func(n int) {
					w, before, began := httptest.NewRecorder(), db.Trips(), time.Now()
					ns.Get(ns.ID(itoa(n%100))).ServeHTTP(w, httptest.NewRequest("POST", "http://test"+path, nil))
					took[i] = append(took[i], time.Since(began))
					if w.Code != 200 {
						b.Fatalf("%d %s", w.Code, w.Body)
					}
					trips[i] += uint64(db.Trips() - before)
				})
			}
			for n := 0; b.Loop(); n++ {
				runs[n%2](n / 2)
				runs[1-n%2](n / 2)
			}
			for i, name := range []string{"file", "wire"} {
				slices.Sort(took[i])
				b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), "µs/"+name)
				b.ReportMetric(float64(trips[i])/float64(len(took[i])), "trips/"+name)
			}
			b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "x")
			b.ReportMetric(0, "ns/op")
		})
	}
}

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

// benchmarkCall runs an event that writes, calls another object, which writes, and
// writes again, one after the other.
func benchmarkCall(b *testing.B, place libsqltest.Place) {
	db := place.Open(b)
	ns := benchRuntime(b, db, 10).Namespace("Counter")
	write := func(o *funcObject, r *http.Request) {
		if _, err := o.state.SQL().Exec(r.Context(), `UPDATE n SET v = v + 1`); err != nil {
			b.Error(err)
		}
	}
	h := handlers{"/call": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
		write(o, r)
		resp, err := callStub(o, "callee").Do(request(r, "/add", r.Context()))
		if err != nil {
			b.Error(err)
			return
		}
		resp.Body.Close()
		write(o, r)
	}}
	trips := db.Trips()
	for b.Loop() {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(context.WithValue(context.Background(), handlersKey{}, h), "POST", "http://test/call", nil)
		ns.Get(ns.ID("caller")).ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(db.Trips()-trips)/float64(b.N), "trips/op")
}

func BenchmarkCallFile(b *testing.B) { benchmarkCall(b, libsqltest.File(b)) }
func BenchmarkCallWire(b *testing.B) { benchmarkCall(b, libsqltest.Wire(b)) }
