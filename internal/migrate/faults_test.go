package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// few is a directory with little of everything.
var few = migratetest.Options{Objects: 6, Bodies: 4, Large: 10 << 10, Rows: 50, Messages: 12}

// fewItems is how many items it has.
const fewItems = 3 + 7 + 6 + 1

// damage changes a file.
func damage(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func garbage(from, to int) func([]byte) []byte {
	return func(b []byte) []byte {
		for i := from; i < min(to, len(b)); i++ {
			b[i] = byte(0xa5 ^ i)
		}
		return b
	}
}

// TestDamage damages one thing of the source at a time: it is named, and
// everything else moves. Repaired, it moves too.
func TestDamage(t *testing.T) {
	object := func(i int) string { return "do/Note/" + migratetest.ID(migratetest.Name(i)) }
	const body = "r2/FILES/photos/2026/1 ä b+c.txt"
	for _, c := range []struct {
		name, item, why string
		outcome         migrate.Outcome
		damage          func(t *testing.T, data string)
		extra           int64 // items that are there besides
	}{
		{"corrupt object", object(1), "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(1)+".sqlite"), garbage(4096, 4096+800))
		}, 0},
		{"corrupt object without alarm", object(2), "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(2)+".sqlite"), garbage(4096, 4096+800))
		}, 0},
		{"not a database", object(2), "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(2)+".sqlite"), garbage(0, 100))
		}, 0},
		{"cut object", object(2), "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(2)+".sqlite"), func(b []byte) []byte { return b[:len(b)-100] })
		}, 0},
		{"WAL cut in a frame", object(4), "ends within frame", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(4)+".sqlite-wal"), func(b []byte) []byte { return b[:len(b)-1000] })
		}, 0},
		{"WAL cut in a transaction", object(4), "ends within a transaction", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(4)+".sqlite-wal"), func(b []byte) []byte { return b[:len(b)-4096-24] })
		}, 0},
		{"WAL with a damaged frame", object(4), "damaged frame", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, object(4)+".sqlite-wal"), garbage(32+24+10, 32+24+20))
		}, 0},
		{"WAL of a database cut", "d1/MAIN_DB", "ends within frame", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, "d1/MAIN_DB.sqlite-wal"), func(b []byte) []byte { return b[:len(b)-1000] })
		}, 0},
		{"corrupt SQL database", "d1/SEARCH_DB", "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, "d1/SEARCH_DB.sqlite"), garbage(100, 1000))
		}, 0},
		{"sidecar with another size", body, "says", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, body+".r2meta"), func(b []byte) []byte { return []byte(strings.Replace(string(b), `"size":6`, `"size":7`, 1)) })
		}, 0},
		{"body of the same size", body, "MD5", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, body), garbage(0, 1))
		}, 0},
		{"sidecar that is none", body, "r2meta", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, body+".r2meta"), func(b []byte) []byte { return b[:20] })
		}, 0},
		{"metadata in two cases", body, "twice", migrate.Skipped, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, body+".r2meta"), func(b []byte) []byte {
				return []byte(strings.Replace(string(b), `"traceId"`, `"TRACEID":"x","traceId"`, 1))
			})
		}, 0},
		{"key in two cases", body[:len(body)-5] + "C.txt", "only in case", migrate.Warned, func(t *testing.T, data string) {
			migratetest.WriteBody(t, data, "FILES", "photos/2026/1 ä b+C.txt", []byte("other"), "", nil)
		}, 2},
		{"class with a bad name", "do/bad-class", "letters", migrate.Skipped, func(t *testing.T, data string) {
			if err := os.Mkdir(filepath.Join(data, "do/bad-class"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"id in capitals", "do/Note/0A", "hex", migrate.Skipped, func(t *testing.T, data string) {
			if err := os.WriteFile(filepath.Join(data, "do/Note/0A.sqlite"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"no binding", "d1/NO_DB", "--map", migrate.Skipped, func(t *testing.T, data string) {
			if err := os.WriteFile(filepath.Join(data, "d1/NO_DB.sqlite"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"link", "r2/FILES/link", "regular", migrate.Skipped, func(t *testing.T, data string) {
			if err := os.Symlink("/etc/passwd", filepath.Join(data, "r2/FILES/link")); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"corrupt backlog", "queue", "", migrate.Failed, func(t *testing.T, data string) {
			damage(t, filepath.Join(data, "queue.sqlite-wal"), garbage(40, 4000))
		}, 0},
		{"unreadable file", body, "read", migrate.Failed, func(t *testing.T, data string) {
			if os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			if err := os.Chmod(filepath.Join(data, body), 0); err != nil {
				t.Fatal(err)
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && !slices.Contains([]string{"corrupt object", "WAL cut in a frame", "corrupt backlog"}, c.name) {
				t.Skip("a short run has few of them")
			}
			r, data := made(t, false, few)
			whole := snapshot(t, data)
			c.damage(t, data)
			res := r.up(data)
			moved, bad := int64(fewItems-1), int64(1)
			if c.extra > 0 {
				moved = fewItems + c.extra - 1
			}
			counts(t, res, moved, 0, bad)
			if len(res.Problems) != 1 || res.Problems[0].Item != c.item || res.Problems[0].Outcome != c.outcome || !strings.Contains(res.Problems[0].Reason, c.why) {
				t.Fatalf("%+v, want %s %s: %s", res.Problems, c.item, c.outcome, c.why)
			}
			if c.extra > 0 {
				return
			}
			// What was not moved is not there, and repaired it moves.
			os.Chmod(filepath.Join(data, c.item), 0o600) //nolint:errcheck // it may have another name
			for path, text := range whole {
				if err := os.WriteFile(filepath.Join(data, path), []byte(text), 0o600); err != nil && !strings.HasPrefix(path, "queue") {
					t.Fatal(err)
				}
			}
			want := migratetest.Local(t, data).AtCentral()
			again := r.up(data, func(c *migrate.Config) {
				c.Only = []migrate.Kind{migrate.SQL, migrate.Objects, migrate.Buckets, migrate.Queues}
			})
			if again.Total().Bad != 0 {
				t.Errorf("repaired: %+v", again.Problems)
			}
			migratetest.Compare(t, "repaired", migratetest.Central(t, r.Target), want)
		})
	}
}

// A lossy store loses the answers of some of the batches that write.
type lossy struct {
	kv.DB
	mu sync.Mutex
	r  *rand.Rand
	// before loses the batch, not only its answer.
	before bool
	denied bool // all of them, and says so
}

func (l *lossy) Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if mode != libsql.Write {
		return l.DB.Batch(ctx, mode, stmts...)
	}
	if l.denied {
		return nil, &libsql.Error{Outcome: libsql.Failed, Kind: libsql.KindAuth, Statement: -1, Err: errors.New("the token may not write")}
	}
	l.mu.Lock()
	lose := l.r.IntN(4) == 0
	l.mu.Unlock()
	err := &libsql.Error{Outcome: libsql.Unknown, Kind: libsql.KindUnreachable, Statement: -1, Err: io.ErrUnexpectedEOF}
	if lose && l.before {
		return nil, err
	}
	res, e := l.DB.Batch(ctx, mode, stmts...)
	if lose && e == nil {
		return nil, err
	}
	return res, e
}

// through has the coordination store behind db.
func (r *rig) through(f func(kv.DB) kv.DB) {
	r.Store = kv.New(f(r.db))
	o := *r.Objects
	o.Store = r.Store
	r.Objects = &o
}

// TestLostAnswers: whatever batch is lost, or its answer, a repeated run ends as
// one without losses.
func TestLostAnswers(t *testing.T) {
	for _, before := range []bool{false, true} {
		for seed := range uint64(2) {
			if testing.Short() && seed > 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v %d", before, seed), func(t *testing.T) {
				t.Parallel()
				r, data := made(t, false, few)
				want := migratetest.Local(t, data).AtCentral()
				plain := r.Target
				r.through(func(db kv.DB) kv.DB { return &lossy{DB: db, r: rand.New(rand.NewPCG(seed, 0)), before: before} })
				ended := false
				for range 40 {
					up, err := migrate.NewUp(r.config(data), &migrate.Progress{})
					if err != nil {
						t.Fatal(err)
					}
					_, err = up.Plan(t.Context())
					var res *migrate.Result
					if err == nil {
						res, err = up.Move(t.Context())
					}
					up.Close()
					if ended = err == nil && res.Total().Bad == 0; ended {
						break
					}
				}
				if !ended {
					t.Fatal("it never ends")
				}
				r.Target = plain
				migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), want)
				r.isFree()
			})
		}
	}
}

// TestNoPermission: nothing moves with a token that must not write, and nothing
// is said to have moved.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	whole := snapshot(t, data)
	plain := r.Target
	r.through(func(db kv.DB) kv.DB { return &lossy{DB: db, denied: true} })
	up, _ := r.plan(data)
	res, err := up.Move(t.Context())
	if kind, _ := libsql.KindOf(err); kind != libsql.KindAuth {
		t.Errorf("%v", err)
	}
	counts(t, res, 0, 0, 0)
	r.Target = plain
	r.isFree()
	for path, text := range snapshot(t, data) {
		if whole[path] != text {
			t.Errorf("%s has changed", path)
		}
	}
}

// A full bucket has room for so many bodies.
type full struct {
	durable.Bucket
	left atomic.Int64
	err  error
	// put is called before each.
	put func()
}

func (f *full) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if f.put != nil {
		f.put()
	}
	if f.left.Add(-1) < 0 {
		return durable.ObjectInfo{}, fmt.Errorf("put %q: %w", key, f.err)
	}
	return f.Bucket.Put(ctx, key, body, opts)
}

// TestFullDisk: a target without room ends a run, which says what did not move;
// with room again it goes on.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it moves much")
	}
	for _, fault := range []error{syscall.ENOSPC} {
		o := few
		o.Bodies = 160 // whenever those that there is room for are done, enough fail in a row
		r, data := made(t, false, o)
		want := migratetest.Local(t, data).AtCentral()
		real := r.Buckets["FILES"]
		f := &full{Bucket: real, err: fault}
		f.left.Store(5)
		r.Buckets["FILES"] = f
		up, _ := r.plan(data)
		res, err := up.Move(t.Context())
		up.Close()
		if !errors.Is(err, fault) || res.Complete || res.Total().Bad < 20 || res.Counts[migrate.Buckets].Moved > 6 || res.Total().Moved == 0 {
			t.Errorf("%v: %+v %+v %+v", err, res.Counts[migrate.Buckets], res.Counts[migrate.Objects], res.Problems)
		}
		// The mark stays: it is not complete.
		if moves, err := migrate.Moves(t.Context(), r.Store); err != nil || len(moves) != 1 || moves[0].State != migrate.Running {
			t.Errorf("%+v, %v", moves, err)
		}
		r.Buckets["FILES"] = real
		res = r.up(data)
		if c := res.Counts[migrate.Buckets]; c.Moved < 150 || c.Bad != 0 {
			t.Errorf("%+v", c)
		}
		migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), want)
	}
}

// TestChangedSource: a source that changes while it is read, or afterwards, is
// noticed.
func TestChangedSource(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	var once atomic.Bool
	path := filepath.Join(data, "do/Note", migratetest.ID(migratetest.Name(2))+".sqlite")
	r.Buckets["FILES"] = &full{Bucket: r.Buckets["FILES"], put: func() {
		if !once.Swap(true) { // objects have moved by now, as jobs are done in order
			damage(t, path, func(b []byte) []byte { return append(b, make([]byte, 4096)...) })
		}
	}}
	r.Buckets["FILES"].(*full).left.Store(1 << 30)
	res := r.up(data, func(c *migrate.Config) { c.Jobs = 1 })
	if len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Reason, "changed") || res.Problems[0].Item != "do/Note/"+migratetest.ID(migratetest.Name(2)) {
		t.Errorf("%+v", res.Problems)
	}
	// A host that was started meanwhile ends the run.
	if err := os.WriteFile(filepath.Join(data, ".dwk-writer.lock"), fmt.Append(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.NewUp(r.config(data), &migrate.Progress{}); !errors.Is(err, migrate.ErrRefused) {
		t.Error(err)
	}
}

// TestInterrupted: an interrupted run says so, claims nothing that it did not do,
// and leaves the mark; the next goes on.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	r, data := made(t, false, few)
	want := migratetest.Local(t, data).AtCentral()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	real := r.Buckets["FILES"]
	f := &full{Bucket: real, put: func() { cancel(stopped) }}
	f.left.Store(1 << 30)
	r.Buckets["FILES"] = f
	up, _ := r.plan(data, func(c *migrate.Config) { c.Jobs = 1 })
	res, err := up.Move(ctx)
	up.Close()
	if !errors.Is(err, stopped) || res.Complete || res.Total().Moved == 0 || res.Counts[migrate.Queues] != nil {
		t.Errorf("%v: %+v", err, res.Counts)
	}
	moved := res.Total().Moved
	r.Buckets["FILES"] = real
	res = r.up(data)
	counts(t, res, fewItems-moved, moved, 0)
	migratetest.Compare(t, "store set", migratetest.Central(t, r.Target), want)
}
