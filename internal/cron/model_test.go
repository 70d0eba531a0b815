package cron

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A modelRun is an occurrence that was won.
type modelRun struct {
	holder  string
	attempt int
	tries   int  // that have begun since it was won
	asked   bool // for, by a request
	running bool
	expired bool // its claim
}

// A model is the reference: one schedule, and replicas that propose, die, lose
// answers and come late with what they hold. Occurrences are numbered.
type model struct {
	f       *fixture
	name    string
	base    int64
	allow   bool
	once    bool
	settled int64
	paused  bool
	won     map[int64]*modelRun
	history map[[2]int64]string // by occurrence and attempt
	claims  []claim             // everything that was ever won
	n       int
}

func (m *model) at(i int64) int64 { return m.base + i*1000 }

func (m *model) take(k kind, i int64, attempt int) take {
	m.n++
	return take{kind: k, name: m.name, at: m.at(i), end: m.base + 100_000_000, attempt: attempt, tries: 1, asked: k == takeRequest, holder: fmt.Sprint("h", m.n), replica: "r", ttl: time.Hour, life: time.Hour, allow: m.allow}
}

// send sends a take and reports whether it was granted.
func (m *model) send(t take) bool {
	stmts, _ := t.statements()
	return libsqltest.MustBatch(m.f.t, m.f.db, libsql.Write, stmts...)[0].Changes > 0
}

// free reports whether nothing stands in the way of a run of i; strict counts
// runs that were cut off.
func (m *model) free(i int64, strict bool) bool {
	for j, w := range m.won {
		if !m.allow && j != i && w.running && (strict || !w.expired) {
			return false
		}
	}
	return true
}

// wins notes what a take has won. The answer may be lost: the claim can be read
// back from a look.
func (m *model) wins(t *rapid.T, k take, i int64) {
	m.won[i] = &modelRun{k.holder, k.attempt, k.tries, k.asked, true, false}
	m.history[[2]int64{i, int64(k.attempt)}] = ""
	c := k.claim()
	if rapid.Bool().Draw(t, "answer lost") {
		list, _ := readLook(libsqltest.MustBatch(m.f.t, m.f.db, libsql.Write, look([]string{m.name})...), 1)
		j := slices.IndexFunc(list[0].running, func(r openRun) bool { return r.Holder == k.holder })
		if j < 0 || list[0].running[j].at != k.at || list[0].running[j].Attempt != k.attempt || list[0].running[j].tries() != k.tries || list[0].running[j].Request != k.asked {
			t.Fatalf("%s was not read back: %+v", k.holder, list[0])
		}
	}
	m.claims = append(m.claims, c)
}

func (m *model) propose(t *rapid.T) {
	i := rapid.Int64Range(1, 12).Draw(t, "occurrence")
	k := m.take(takeDue, i, 1)
	late := rapid.IntRange(0, 4).Draw(t, "late") == 0
	if late { // the replica stood still
		k.end = m.f.NowMs()
	}
	for j := int64(1); j < i; j++ {
		k.missed = append(k.missed, m.at(j))
	}
	want := !late && !m.paused && i > m.settled && m.won[i] == nil && m.free(i, true)
	if got := m.send(k); got != want {
		t.Fatalf("occurrence %d: won is %v, want %v", i, got, want)
	}
	if want {
		for j := m.settled + 1; j < i; j++ {
			if _, ok := m.history[[2]int64{j, 0}]; !ok {
				m.history[[2]int64{j, 0}] = Missed
			}
		}
		m.settled = i
		m.wins(t, k, i)
	}
}

// some draws an occurrence that was won.
func (m *model) some(t *rapid.T) (int64, *modelRun) {
	if len(m.won) == 0 {
		t.Skip("nothing was won")
	}
	i := rapid.SampledFrom(slices.Sorted(maps.Keys(m.won))).Draw(t, "run")
	return i, m.won[i]
}

func (m *model) repeat(t *rapid.T) {
	i, w := m.some(t)
	if w.tries > 1 || w.tries == 1 && m.once || rapid.IntRange(0, 9).Draw(t, "close") == 0 {
		m.close(t, i, w)
		return
	}
	k := m.take(takeRepeat, i, w.attempt+1)
	k.old, k.tries, k.asked = w.holder, w.tries+1, w.asked
	stale := true // what the look has shown
	switch rapid.IntRange(0, 5).Draw(t, "stale") {
	case 0: // somebody else has repeated it since
		k.old = "somebody"
	case 1: // it was handed back since
		k.attempt++
	default:
		stale = false
	}
	want := !stale && w.running && w.expired && (w.asked || !m.paused) && m.free(i, false)
	if got := m.send(k); got != want {
		t.Fatalf("repeat of %d, %+v: %v, want %v", i, w, got, want)
	}
	if want {
		if w.tries > 0 {
			m.history[[2]int64{i, int64(w.attempt)}] = Interrupted
		} else if !w.asked {
			delete(m.history, [2]int64{i, 0})
		}
		m.wins(t, k, i)
	}
}

func (m *model) close(t *rapid.T, i int64, w *modelRun) {
	k := m.take(takeClose, i, w.attempt)
	k.old, k.tries = w.holder, w.tries
	want := w.running && w.expired
	if got := m.send(k); got != want {
		t.Fatalf("close of %d, %+v: %v, want %v", i, w, got, want)
	}
	if want {
		w.running = false
		if w.tries > 0 {
			m.history[[2]int64{i, int64(w.attempt)}] = Interrupted
		}
	}
}

// end ends one of all the claims that there ever were, also late.
func (m *model) end(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("nothing was won")
	}
	c := rapid.SampledFrom(m.claims).Draw(t, "claim")
	i := (c.at - m.base) / 1000
	w := m.won[i]
	r := result{outcome: rapid.SampledFrom([]string{OK, Failed, Interrupted, ""}).Draw(t, "outcome")}
	want := w.holder == c.holder && w.attempt == c.attempt
	if r.outcome == Interrupted || r.outcome == "" {
		want = want && w.running
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") { // a lost answer has it repeated
		if got := m.f.end(c, r); got != want {
			t.Fatalf("end of %d by %+v: %v, want %v (%+v)", i, c, got, want, w)
		}
		if r.outcome == "" {
			break // it is no longer this attempt
		}
	}
	if !want {
		return
	}
	run := [2]int64{i, int64(c.attempt)}
	switch r.outcome {
	case "":
		delete(m.history, run)
		if c.attempt == 1 && !w.asked && m.history[[2]int64{i, 0}] == "" {
			m.history[[2]int64{i, 0}] = Missed
		}
		w.attempt, w.tries, w.expired = w.attempt-1, w.tries-1, true
	case Interrupted:
		m.history[run], w.expired = Interrupted, true
	default:
		m.history[run], w.running = r.outcome, false
	}
}

func (m *model) renew(t *rapid.T) {
	if len(m.claims) == 0 {
		t.Skip("nothing was won")
	}
	c := rapid.SampledFrom(m.claims).Draw(t, "claim")
	w := m.won[(c.at-m.base)/1000]
	v, err := m.f.s.Commit(m.f.t.Context(), c.renewal())
	if want := w.holder == c.holder && w.attempt == c.attempt && w.running && !w.expired; err != nil || v.OK != want {
		t.Fatalf("renewal of %+v: %v %v, want %v", c, v.OK, err, want)
	}
}

// expire lets all claims end.
func (m *model) expire(*rapid.T) {
	m.f.expire(m.name)
	for _, w := range m.won {
		w.expired = true
	}
}

func (m *model) pause(t *rapid.T) {
	if m.paused = !m.paused; m.paused {
		m.f.set(map[string]any{}, PrefixPause, m.name)
		return
	}
	// Not by Resume, which would settle all occurrences of the model.
	if err := m.f.s.Delete(m.f.t.Context(), tuple.Key{PrefixPause, m.name}); err != nil {
		t.Fatal(err)
	}
}

// request has an occurrence run that may have run before.
func (m *model) request(t *rapid.T) {
	i := rapid.Int64Range(1, 12).Draw(t, "occurrence")
	id, err := Request(m.f.t.Context(), m.f.s, m.name, "me", time.UnixMilli(m.at(i)))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := readLook(libsqltest.MustBatch(m.f.t, m.f.db, libsql.Write, look([]string{m.name})...), 1)
	most := int64(0)
	for run := range m.history {
		if run[0] == i {
			most = max(most, run[1])
		}
	}
	if r := list[0].request; r == nil || r.at != m.at(i) || r.runs != int(most) {
		t.Fatalf("%+v of %d, want %d runs", r, i, most)
	}
	k := m.take(takeRequest, i, int(most)+1)
	k.request = tuple.MustEncode(PrefixRequest, m.name, id)
	w := m.won[i]
	fresh := most == 0 || rapid.IntRange(0, 5).Draw(t, "stale") > 0
	if !fresh { // it was run once more since the look
		k.attempt--
	}
	want := fresh && (w == nil || !w.running) && m.free(i, true)
	for n := range 2 { // another replica has seen the same request
		if n == 1 {
			k.holder += "'"
		}
		if got := m.send(k); got != (want && n == 0) {
			t.Fatalf("request of %d: %v, want %v", i, got, want)
		}
	}
	if want {
		k.holder = k.holder[:len(k.holder)-1]
		m.wins(t, k, i)
	} else if err := m.f.s.Delete(m.f.t.Context(), tuple.Key{PrefixRequest, m.name, id}); err != nil {
		t.Fatal(err)
	}
}

// check compares the store with the model.
func (m *model) check(t *rapid.T) {
	got := map[[2]int64]string{}
	for _, l := range m.f.history(m.name) {
		if l.outcome == Skipped { // which of the two is a matter of time, which the model has not
			l.outcome = Missed
		}
		got[[2]int64{(l.at - m.base) / 1000, l.n}] = l.outcome
	}
	if !maps.Equal(got, m.history) {
		t.Fatalf("history %v, want %v", got, m.history)
	}
	list, now := readLook(libsqltest.MustBatch(m.f.t, m.f.db, libsql.Write, look([]string{m.name})...), 1)
	claimed, running := 0, 0
	for i, w := range m.won {
		j := slices.IndexFunc(list[0].running, func(r openRun) bool { return r.at == m.at(i) })
		if (j >= 0) != w.running {
			t.Fatalf("occurrence %d is listed as running: %v, want %v", i, j >= 0, w.running)
		}
		if j < 0 {
			continue
		}
		running++
		r := list[0].running[j]
		if r.Holder != w.holder || r.Attempt != w.attempt || r.tries() != w.tries || (r.Until <= now) != w.expired {
			t.Fatalf("occurrence %d is %+v, want %+v", i, r, w)
		}
		if !w.expired {
			claimed++
		}
	}
	if running != len(list[0].running) || !m.allow && claimed > 1 {
		t.Fatalf("%d of %d run, %d with a claim", running, len(list[0].running), claimed)
	}
	if ok, _ := m.f.SQL(`SELECT ok FROM kv_meta`)[0][0].(int64); ok == 2 {
		t.Fatal("a take has not ended")
	}
}

func TestModel(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		n := 0
		rapid.Check(t, func(t *rapid.T) {
			n++
			m := &model{f: f, name: fmt.Sprint("s", n), base: f.NowMs() - 1_000_000, allow: rapid.Bool().Draw(t, "allow"), once: rapid.Bool().Draw(t, "once"),
				won: map[int64]*modelRun{}, history: map[[2]int64]string{}}
			if !m.send(m.take(takeNew, 0, 0)) || m.send(m.take(takeNew, 0, 0)) {
				t.Fatal("a new schedule is noted once")
			}
			f.SQL(`UPDATE kv SET v = json_set(v, '$.since', ?) WHERE k = ?`, m.base, tuple.MustEncode(PrefixLast, m.name))
			t.Repeat(map[string]func(*rapid.T){
				"propose": m.propose, "repeat": m.repeat, "end": m.end, "renew": m.renew, "expire": m.expire, "pause": m.pause, "request": m.request, "": m.check,
			})
			f.SQL(`DELETE FROM kv WHERE k > ? AND k < ?`, tuple.MustEncode("dwk_cron"), tuple.RangeEnd(tuple.MustEncode("dwk_cron")))
			f.SQL(`DELETE FROM kv WHERE k = ?`, tuple.MustEncode(PrefixLast, m.name))
		})
	})
}
