package lease_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A leaseModel is the reference: one lease, all who ever had it, and what a
// primary that loses commits goes back to.
type leaseModel struct {
	s    *kv.Store
	db   *libsql.DB
	n    int
	held []lease.Held
	live *lease.Held
	// saved is the state of a backup.
	saved struct {
		live *lease.Held
		seq  any
		rows []libsql.Row
	}
}

func (m *leaseModel) sql(t *rapid.T, sql string, args ...any) libsql.Result {
	res, err := m.db.Batch(t.Context(), libsql.Write, libsql.S(sql, args...))
	if err != nil {
		t.Fatal(err)
	}
	return res[0]
}

// some draws one who had the lease at some time.
func (m *leaseModel) some(t *rapid.T) lease.Held {
	if len(m.held) == 0 {
		t.Skip("nobody ever had it")
	}
	// The newest are those that may be taken for each other.
	return m.held[max(0, len(m.held)-1-rapid.IntRange(0, 3).Draw(t, "back"))]
}

func (m *leaseModel) holds(h lease.Held) bool { return m.live != nil && *m.live == h }

func (m *leaseModel) attempt(t *rapid.T) {
	m.n++
	a := lease.Attempt{Class: "C", ID: "0a", Holder: fmt.Sprint("h", m.n), Replica: "r", TTL: time.Hour, DeadlineMs: 1 << 50, Want: rapid.Bool().Draw(t, "want")}
	late := rapid.IntRange(0, 9).Draw(t, "late") == 0
	if late {
		a.DeadlineMs = 1
	}
	if len(m.held) > 0 && rapid.Bool().Draw(t, "given up") {
		a.GivenUp = []string{m.some(t).Holder}
	}
	p := kv.NewPlan()
	shown, err := a.Add(p)
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.s.Commit(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	want := !late && (m.live == nil || len(a.GivenUp) > 0 && a.GivenUp[0] == m.live.Holder)
	if v.OK != want {
		t.Fatalf("%+v: taken is %v, want %v", a, v.OK, want)
	}
	info, live, err := lease.Read("C", "0a", v.Results[shown])
	if err != nil {
		t.Fatal(err)
	}
	if want {
		h := lease.Held{Class: "C", ID: "0a", Holder: a.Holder, Stamp: v.Stamp}
		m.held, m.live = append(m.held, h), &h
	}
	if live != (m.live != nil) || live && (info.Holder != m.live.Holder || info.Stamp != m.live.Stamp) {
		t.Fatalf("%+v is shown, want %+v", info, m.live)
	}
}

// use has one who had the lease do something with it.
func (m *leaseModel) use(t *rapid.T) {
	h := m.some(t)
	want := m.holds(h)
	var got bool
	var err error
	what := rapid.SampledFrom([]string{"commit", "commit and release", "extend", "confirm", "release"}).Draw(t, "what")
	switch what {
	case "commit", "commit and release":
		p := kv.NewPlan()
		h.Require(p)
		if what != "commit" {
			h.AddRelease(p)
		}
		var v kv.Verdict
		v, err = m.s.Commit(t.Context(), p)
		got = v.OK
	case "extend":
		_, got, err = h.Extend(t.Context(), m.s, time.Hour)
	case "confirm":
		_, got, err = h.Confirm(t.Context(), m.s)
	case "release":
		got, err = h.Release(t.Context(), m.s)
		got = got && m.live != nil // what has expired may be removed
	}
	if err != nil || got != want {
		t.Fatalf("%s by %+v: %v %v, want %v; %+v has it", what, h, got, err, want, m.live)
	}
	if want && (what == "release" || what == "commit and release") {
		m.live = nil
	}
}

func (m *leaseModel) expire(t *rapid.T) {
	m.sql(t, `UPDATE kv SET expires_at = 1`)
	m.live = nil
}

func (m *leaseModel) sweep(t *rapid.T) {
	if _, err := m.s.Sweep(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
}

func (m *leaseModel) save(t *rapid.T) {
	m.saved.live, m.saved.seq = m.live, m.sql(t, `SELECT seq FROM kv_meta`).Rows[0][0]
	m.saved.rows = m.sql(t, `SELECT k, v, ver, expires_at FROM kv`).Rows
}

// lose has the primary go back to its backup: stamps repeat.
func (m *leaseModel) lose(t *rapid.T) {
	if m.saved.seq == nil {
		t.Skip("there is no backup")
	}
	m.live = m.saved.live
	m.sql(t, `DELETE FROM kv`)
	m.sql(t, `UPDATE kv_meta SET seq = ?`, m.saved.seq)
	for _, row := range m.saved.rows {
		m.sql(t, `INSERT INTO kv VALUES (?, ?, ?, ?)`, row...)
	}
}

// check demands that the store shows the lease that the model has.
func (m *leaseModel) check(t *rapid.T) {
	info, ok, err := lease.Inspect(t.Context(), m.s, "C", "0a")
	if err != nil || ok != (m.live != nil) || ok && (info.Holder != m.live.Holder || info.Stamp != m.live.Stamp) {
		t.Fatalf("%+v %v %v, want %+v", info, ok, err, m.live)
	}
}

// TestModel compares leases with the reference, at any order of what holders,
// former holders and an unlucky primary do.
func TestModel(t *testing.T) {
	db := libsqltest.File(t).Open(t)
	t.Cleanup(func() { db.Close() })
	s := kv.New(db)
	if err := s.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &leaseModel{s: s, db: db}
		m.sql(t, `DELETE FROM kv`)
		t.Repeat(map[string]func(*rapid.T){
			"attempt": m.attempt, "use": m.use, "expire": m.expire, "sweep": m.sweep, "save": m.save, "lose": m.lose, "": m.check,
		})
	})
}
