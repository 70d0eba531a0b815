package keeper_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/mirror/mirrortest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// A replica is a mirror and the head that it believes in.
type replica struct {
	*mirror.Mirror
	head objlog.Head
}

// A late commit is still on its way when its lease has ended.
type late struct {
	plan *kv.Plan
	txid uint64
}

// write runs an event on a replica and ships what it changed, under a lease.
// Some replicas have not looked at the head again.
func (w *world) write(o *object, m *replica) {
	w.Helper()
	if w.r.IntN(10) > 0 {
		w.catchUp(o, m)
	} else {
		w.stats["stale"]++
	}
	held := w.take(o.id)
	defer func() {
		_, err := held.Release(w.Context(), w.store)
		w.must(err)
	}()
	mirrortest.Event(w, m, w.r, 1+w.r.IntN(3))
	if w.r.IntN(4) == 0 { // another event of the same batch, which fails
		w.stats["undone alone"]++
		mark, err := m.Mark()
		w.must(err)
		mirrortest.Event(w, m, w.r, 1+w.r.IntN(2))
		if w.r.IntN(2) == 0 {
			w.exec(m.Mirror, "BEGIN; INSERT INTO t(a) VALUES(1)")
		}
		w.must(m.UndoTo(mark))
	}
	w.must(m.Reset())
	e, err := m.Capture()
	w.must(err)
	if e == nil {
		w.stats["nothing"]++
		return
	}
	defer e.Close()
	w.grow(o, func() { w.ship(o, m, e, held) })
}

// take takes the lease of an object.
func (w *world) take(id string) lease.Held {
	w.Helper()
	p := kv.NewPlan()
	a := lease.Attempt{Class: "C", ID: id, Holder: uuid.NewString(), TTL: time.Minute, DeadlineMs: w.store.Clock().Add(time.Minute).UnixMilli()}
	shown, err := a.Add(p)
	w.must(err)
	v, err := w.store.Commit(w.Context(), p)
	w.must(err)
	info, ok, err := lease.Read("C", id, v.Results[shown])
	w.must(err)
	if !ok || info.Holder != a.Holder {
		w.Fatalf("the lease of %s was not taken", id)
	}
	return lease.Held{Class: "C", ID: id, Holder: a.Holder, Stamp: info.Stamp}
}

// ship sends an entry, which may get lost, or its answer, or the lease.
func (w *world) ship(o *object, m *replica, e *mirror.Entry, held lease.Held) {
	w.Helper()
	c := objlog.Commit{
		Class: "C", ID: o.id, Base: m.head, CommitID: w.commitID(), Epoch: held.Stamp,
		Post: e.Post.Checksum, PageSize: e.PageSize, Pages: e.Pages, Snapshot: m.head.Checksum == 0,
	}
	if e.Size > w.limit {
		c.Ref, c.Size = objlog.Ref(storeID, "C", o.id, c.TXID(), held.Stamp), e.Size
		w.must(w.putFile(c.Ref, e))
	} else {
		var err error
		c.Data, err = io.ReadAll(e.Open())
		w.must(err)
	}
	p := kv.NewPlan()
	held.Require(p)
	c.Add(p)
	content := w.content(m.Mirror)
	current := m.head.TXID == w.head(o.id).TXID && m.head.CommitID == w.head(o.id).CommitID
	switch w.r.IntN(12) {
	case 0:
		w.stats["lost"]++
	case 1, 2: // the lease ends first, and the commit arrives, now or much later
		w.stats["fenced"]++
		_, err := held.Release(w.Context(), w.store)
		w.must(err)
		o.late = append(o.late, late{p, c.TXID()})
		if w.r.IntN(2) == 0 {
			w.deliver(o)
		}
	default:
		v, err := w.store.Commit(w.Context(), p)
		w.must(err)
		if v.OK != current {
			w.Fatalf("commit %d of object %s, by a writer whose head was current: %v, passed: %v", c.TXID(), o.id, current, v.OK)
		}
		if v.OK {
			w.stats["write"]++
			if w.r.IntN(5) > 0 {
				w.must(m.Confirm(e.Post))
				m.head = w.head(o.id)
				o.note(c.TXID(), w.sum(m.Mirror))
				return
			}
			w.stats["in doubt"]++
			o.note(c.TXID(), w.readBack(o, c.TXID(), content))
		} else {
			w.stats["refused"]++
		}
	}
	if w.r.IntN(3) == 0 {
		w.must(m.Discard())
		m.head = objlog.Head{}
		return
	}
	was := m.head
	w.must(m.Undo())
	if w.r.IntN(2) == 0 {
		w.must(m.Verify())
	}
	if at := m.Position(); at.TXID != was.TXID || at.Checksum != was.Checksum {
		w.Fatalf("undone to %s, want %d/%016x", at, was.TXID, was.Checksum)
	}
}

// content is the hash of all tables.
func (w *world) content(m *mirror.Mirror) string {
	w.Helper()
	h := sha256.New()
	rows := func(query string) (names []string) {
		w.Helper()
		for row, err := range m.Query(w.Context(), query) {
			w.must(err)
			fmt.Fprintf(h, "%T %v\n", row.Values, row.Values)
			if name, ok := row.Values[0].(string); ok {
				names = append(names, name)
			}
		}
		return names
	}
	for _, name := range rows("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name") {
		rows(fmt.Sprintf("SELECT * FROM %q", name))
	}
	return string(h.Sum(nil))
}

// readBack returns the hash of the database at a commit that its writer was not
// told about, which has the content that it had there.
func (w *world) readBack(o *object, txid uint64, content string) string {
	w.Helper()
	m := mirror.New(filepath.Join(w.TempDir(), "read.db"), mirror.Config{})
	w.must(w.CatchUp(w.Context(), m, "C", o.id, txid))
	if w.content(m) != content {
		w.Fatalf("commit %d of object %s has another content than its writer had", txid, o.id)
	}
	sum := w.sum(m)
	w.must(m.Discard())
	return sum
}

// putFile puts the file of an entry into the object store, whatever becomes of
// merges.
func (w *world) putFile(ref string, e *mirror.Entry) error {
	crash := w.blobs.crash
	w.blobs.crash = false
	defer func() { w.blobs.crash = crash }()
	return w.blobs.Put(w.Context(), ref, e.Open(), e.Size)
}

// deliver has the commits arrive that were late: each is refused, whatever the
// head is by now.
func (w *world) deliver(o *object) {
	w.Helper()
	for _, l := range o.late {
		v, err := w.store.Commit(w.Context(), l.plan)
		w.must(err)
		if v.OK {
			w.Fatalf("a commit %d of object %s was accepted behind the end of its lease", l.txid, o.id)
		}
		w.stats["late"]++
	}
	o.late = nil
}
