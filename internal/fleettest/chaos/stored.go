package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/audit"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/objectops"
	"github.com/davidwkeith/dwk/internal/queue"
)

// deadLetters counts the dead letters by the op of their body.
func (w *world) deadLetters() (map[string]int, error) {
	list, err := w.texts(`json_extract(CAST(v AS TEXT), '$.body.op')`, queue.PrefixDead, "default")
	out := map[string]int{}
	for _, op := range list {
		out[op]++
	}
	return out, err
}

// deadAlarms are the ids of the timers whose alarms were given up.
func (w *world) deadAlarms() (map[string]bool, error) {
	prefix := tuple.MustEncode(alarm.DeadPrefix, "Timer")
	res, err := w.store.Decide(w.ctx, libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ?`, prefix, tuple.RangeEnd(prefix)))
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, row := range res[0].Rows {
		k, err := tuple.Decode(row[0].([]byte))
		if err != nil {
			return nil, err
		}
		out[fmt.Sprint(k[2])] = true
	}
	return out, nil
}

// checkStale looks whether an event that was under way when another replica took
// over was committed behind what that wrote.
func (w *world) checkStale(ops *objectops.Ops, h *hold) {
	if h.got.Status != http.StatusOK || h.other == nil || h.got.Epoch() >= h.other.Epoch() || h.got.Txid() < h.other.Txid() {
		return
	}
	d, err := ops.Open(w.ctx, "Note", id(h.name), objectops.Target{TXID: uint64(h.other.Txid())})
	if err != nil {
		w.Errorf("note/%s at commit %d: %v", h.name, h.other.Txid(), err)
		return
	}
	defer d.Close() //nolint:errcheck // a temporary file
	for row, err := range d.Query(w.ctx, `SELECT count(*) FROM lab_sleeps`) {
		if err != nil {
			w.Errorf("note/%s at commit %d: %v", h.name, h.other.Txid(), err)
		} else if fmt.Sprint(row.Values[0]) == "0" {
			w.stale("note/"+h.name, "its event wrote commit %d under lease %d, after commit %d under lease %d", h.got.Txid(), h.got.Epoch(), h.other.Txid(), h.other.Epoch())
		}
	}
}

// sizes are the files of the object store.
type sizes struct{ durable.Bucket }

func (s sizes) Size(ctx context.Context, ref string) (int64, error) {
	info, err := s.Head(ctx, ref)
	return info.Size, err
}

// checkStored audits all that is stored, and compares the mirrors with the log.
func (w *world) checkStored() {
	b, err := s3.Open(w.objects)
	if err != nil {
		w.Errorf("open the object store: %v", err)
		return
	}
	defer b.Close()
	files := bucket.Retry(b)
	_, set, err := mode.Read(w.ctx, w.store)
	if err != nil {
		w.Errorf("read the store set's identity: %v", err)
		return
	}
	ops := objectops.New(objectops.Config{Store: w.store, Blobs: keeper.InBucket(files), StoreID: set.ID, Dir: w.TempDir()})
	cfg := audit.Config{Store: w.store, Files: sizes{files}, Objects: ops, StoreID: set.ID, LeaseTTL: w.plan.TTL}
	sum, err := audit.Run(w.ctx, cfg, audit.Options{Deep: true, Overdue: time.Minute}, func(f audit.Finding) error {
		if f.Severity == audit.SeverityFinding {
			w.violate("audit", "audit", f.Check+" "+f.Class+"/"+f.ID, "%s %s", f.Message, f.Reason)
		}
		return nil
	})
	if err != nil {
		w.Errorf("audit: %v", err)
		return
	}
	w.note(func(r *figures.Robustness) { r.Databases += int(sum.Databases) })
	for _, h := range w.holds {
		w.checkStale(ops, h)
	}
	w.checkMirrors(ops)
}

// compared is how many objects have their mirrors compared.
const compared = 18

// checkMirrors has all replicas read all objects in use, and compares the files
// of their mirrors with what the log leads to.
func (w *world) checkMirrors(ops *objectops.Ops) {
	var paths []string
	for _, h := range w.stage.histories {
		paths = append(paths, h.Name)
	}
	for _, l := range w.stage.ledgers {
		paths = append(paths, "note/"+l.Name)
	}
	paths = paths[max(0, len(paths)-compared):]
	for _, s := range w.slots {
		r, _ := s.get()
		each(paths, func(path string) {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline) && w.ctx.Err() == nil; w.sleep(50 * time.Millisecond) {
				if a := w.caller(s).Do(http.MethodGet, path, ""); a.Status == http.StatusOK || a.Status == http.StatusNotFound {
					return
				}
			}
			w.violate("answers", "quiet", path, "%s does not answer for it", r.Name)
		})
	}
	want := map[string]uint64{} // checksums by class and id
	for _, path := range paths {
		kind, name, _ := strings.Cut(path, "/")
		class := map[string]string{"counter": "Counter", "note": "Note"}[kind]
		head, err := ops.Head(w.ctx, class, id(name))
		if err != nil {
			w.Errorf("head of %s: %v", path, err)
			return
		}
		if head.Exists() && head.Checksum != 0 {
			want[filepath.Join(class, id(name))] = head.Checksum
		}
	}
	equal := 0
	for _, s := range w.slots {
		r, _ := s.get()
		for object, sum := range want {
			path := newest(filepath.Join(r.Dir(), "objects", object+".*.db"))
			if path == "" {
				continue
			}
			got, err := w.checksum(ops, path)
			switch {
			case err != nil:
				w.violate("sync before serve", "mirror", object, "the mirror of %s: %v", r.Name, err)
			case got != sum:
				w.violate("sync before serve", "mirror", object, "the mirror of %s has the checksum %016x, the log leads to %016x", r.Name, got, sum)
			default:
				equal++
			}
		}
	}
	w.note(func(r *figures.Robustness) { r.Mirrors += equal })
}

// newest is the file that was changed last, "" without one.
func newest(pattern string) (path string) {
	var last time.Time
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(last) {
			path, last = f, info.ModTime()
		}
	}
	return path
}

// checksum is that of a copy of a mirror's database and what is in its WAL.
func (w *world) checksum(ops *objectops.Ops, path string) (uint64, error) {
	dir := w.TempDir()
	defer os.RemoveAll(dir) //nolint:errcheck // with everything else
	to := filepath.Join(dir, "mirror.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if os.IsNotExist(err) && suffix != "" {
			continue
		}
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
			return 0, err
		}
	}
	if err := checkpoint(to); err != nil {
		return 0, err
	}
	d, err := ops.OpenFile(to)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return d.Checksum(), d.Verify(w.ctx)
}

// checkpoint moves what is in the WAL of a database into its file.
func checkpoint(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it is a copy
	var busy, frames, moved int
	if err := db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &frames, &moved); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
