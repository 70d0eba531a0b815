package queue

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// A modelMessage is what a message should be.
type modelMessage struct {
	attempts, crashes int
	claim             string
	later, dead       bool
}

// A model is the reference: messages, and replicas that remember claims.
type model struct {
	f        *fixture
	queue    string
	max      int
	messages map[string]*modelMessage
	replicas [2]modelReplica
}

type modelReplica struct {
	held    map[string][]held // by claim
	givenUp []string
}

func (m *model) send(t *rapid.T) {
	delay := time.Duration(rapid.SampledFrom([]int{0, 1}).Draw(t, "hours")) * time.Hour
	for _, id := range m.f.put(m.queue, delay, slices.Repeat([]any{"x"}, rapid.IntRange(1, 3).Draw(t, "n"))...) {
		m.messages[id] = &modelMessage{later: delay > 0}
	}
}

func (m *model) eligible(c claim, msg *modelMessage) (ok, suspect, doomed bool) {
	crashed := 0
	if msg.claim != "" && !slices.Contains(c.givenUp, msg.claim) {
		crashed = 1
	}
	doomed = crashed == 1 && msg.attempts+1 >= m.max
	return !msg.dead && !msg.later && !doomed, msg.crashes+crashed >= c.suspectAt(), doomed
}

func (m *model) claim(t *rapid.T) {
	r := rapid.IntRange(0, 1).Draw(t, "replica")
	c := newClaim(m.queue)
	c.replica, c.maxAttempts, c.limit = fmt.Sprint(r), m.max, 100
	c.suspect = rapid.Bool().Draw(t, "suspect")
	c.givenUp = m.replicas[r].givenUp
	few := rapid.Bool().Draw(t, "few")
	if few {
		c.limit = rapid.IntRange(1, 3).Draw(t, "limit")
	}
	var normal, suspects int
	doomed := map[string]bool{}
	for id, msg := range m.messages {
		ok, suspect, dies := m.eligible(c, msg)
		if dies && !msg.dead && !msg.later {
			doomed[id] = true
		}
		switch {
		case ok && suspect && c.suspect:
			suspects++
		case ok && !suspect:
			normal++
		}
	}
	c2 := c
	c2.limit = 100 // all that are doomed are found
	libsqltest.MustBatch(m.f.t, m.f.db, 1, c2.bury())
	taken, _ := m.f.claim(c)
	for id := range doomed {
		m.messages[id].attempts++
		m.messages[id].claim, m.messages[id].dead = "", true
	}
	for _, h := range taken {
		msg := m.messages[h.id]
		ok, suspect, _ := m.eligible(c, msg)
		if !ok || suspect && (!c.suspect || len(taken) > 1) {
			t.Fatalf("%s was claimed: %+v", h.id, msg)
		}
		if msg.claim != "" && !slices.Contains(c.givenUp, msg.claim) {
			msg.attempts++
			msg.crashes++
		}
		msg.claim, msg.later = c.id, true
		if h.Attempts != msg.attempts || h.Crashes != msg.crashes {
			t.Fatalf("%s: %+v, want %+v", h.id, h, msg)
		}
	}
	if normal+suspects > 0 && len(taken) == 0 || suspects == 0 && len(taken) != min(normal, c.limit) {
		t.Fatalf("%d of %d and %d suspects were claimed", len(taken), normal, suspects)
	}
	if rapid.Bool().Draw(t, "lost") {
		m.replicas[r].givenUp = append(m.replicas[r].givenUp, c.id)
		if rapid.Bool().Draw(t, "read back") {
			back, err := readHeld(m.queue, libsqltest.MustBatch(m.f.t, m.f.db, 0, locate(m.queue, c.id, c.visibility))[0])
			if err != nil || !slices.Equal(idsOf(back), idsOf(taken)) {
				t.Fatalf("read back %v, not %v (%v)", idsOf(back), idsOf(taken), err)
			}
			m.replicas[r].held[c.id] = back
		}
		return
	}
	m.replicas[r].held[c.id] = taken
}

func (m *model) settle(t *rapid.T) {
	r := &m.replicas[rapid.IntRange(0, 1).Draw(t, "replica")]
	if len(r.held) == 0 {
		t.Skip("nothing is held")
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(r.held))).Draw(t, "claim")
	s := settlement{queue: m.queue, claim: id, retention: time.Hour}
	want := 0
	for _, h := range r.held[id] {
		msg := m.messages[h.id]
		ours := msg != nil && msg.claim == id
		if ours {
			want++
			msg.claim = ""
		}
		how := rapid.IntRange(0, 4).Draw(t, "how")
		if ours && how > 1 {
			msg.attempts++
		}
		switch how {
		case 0:
			s.acks = append(s.acks, h.key)
			if ours {
				delete(m.messages, h.id)
			}
		case 1, 2, 3:
			s.again = append(s.again, move{key: h.key, delay: time.Duration(how/3) * time.Hour, counted: how > 1, err: "e"})
			if ours {
				msg.later = how == 3
			}
		case 4:
			s.dead = append(s.dead, move{key: h.key, counted: true, err: "e"})
			if ours {
				msg.dead, msg.later = true, false
			}
		}
	}
	// Its keys have moved when the claim has expired meanwhile.
	got := len(m.f.settle(s))
	if got != want {
		t.Fatalf("%d were settled, want %d", got, want)
	}
	if again := m.f.settle(s); len(again) != 0 {
		t.Fatalf("settled again: %q", again)
	}
	delete(r.held, id)
}

// expire lets all delays and claims end. The replicas that held them have
// found out.
func (m *model) expire(*rapid.T) {
	m.f.expire(m.queue)
	for _, msg := range m.messages {
		msg.later = false
	}
	for i := range m.replicas {
		m.replicas[i].held = map[string][]held{}
	}
}

func (m *model) restart(t *rapid.T) {
	m.replicas[rapid.IntRange(0, 1).Draw(t, "replica")] = modelReplica{held: map[string][]held{}}
}

func (m *model) redrive(t *rapid.T) {
	want := 0
	for _, msg := range m.messages {
		if msg.dead {
			want++
			*msg = modelMessage{}
		}
	}
	if n, err := Redrive(m.f.t.Context(), m.f.s, m.queue, ""); n != want || err != nil {
		t.Fatalf("%d driven again, want %d (%v)", n, want, err)
	}
}

func (m *model) purge(t *rapid.T) {
	dead := rapid.Bool().Draw(t, "dead")
	before := len(m.messages)
	maps.DeleteFunc(m.messages, func(_ string, msg *modelMessage) bool { return msg.dead == dead })
	if n, err := Purge(m.f.t.Context(), m.f.s, m.queue, dead); n != before-len(m.messages) || err != nil {
		t.Fatalf("%d purged, want %d (%v)", n, before-len(m.messages), err)
	}
}

// check compares the store with the model.
func (m *model) check(t *rapid.T) {
	got := map[string]modelMessage{}
	now := m.f.NowMs()
	for _, dead := range []bool{false, true} {
		for s, err := range Peek(m.f.t.Context(), m.f.s, m.queue, dead, 0) {
			if err != nil {
				t.Fatal(err)
			}
			got[s.ID] = modelMessage{s.Attempts, s.Crashes, s.Claim, !dead && s.At > now, dead}
		}
	}
	for id, msg := range m.messages {
		if got[id] != *msg {
			t.Fatalf("%s is %+v, want %+v", id, got[id], *msg)
		}
	}
	if len(got) != len(m.messages) {
		t.Fatalf("%d messages, want %d", len(got), len(m.messages))
	}
	i, err := Inspect(m.f.t.Context(), m.f.s, m.queue)
	var want Info
	for _, msg := range m.messages {
		switch {
		case msg.dead:
			want.Dead++
		case !msg.later:
			want.Due++
		case msg.claim != "":
			want.Claimed++
		default:
			want.Delayed++
		}
	}
	if err != nil || i.Due != want.Due || i.Claimed != want.Claimed || i.Delayed != want.Delayed || i.Dead != want.Dead ||
		(i.OldestMs == nil) != (want.Due == 0) || (i.ClaimEnds == nil) != (want.Claimed == 0) {
		t.Fatalf("%+v %v, want %+v", i, err, want)
	}
}

func TestModel(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		n := 0
		rapid.Check(t, func(t *rapid.T) {
			n++
			m := &model{f: f, queue: fmt.Sprint("q", n), max: rapid.IntRange(1, 4).Draw(t, "max"), messages: map[string]*modelMessage{}}
			m.replicas[0].held, m.replicas[1].held = map[string][]held{}, map[string][]held{}
			t.Repeat(map[string]func(*rapid.T){
				"send": m.send, "claim": m.claim, "settle": m.settle, "expire": m.expire, "restart": m.restart,
				"redrive": m.redrive, "purge": m.purge, "": m.check,
			})
			f.SQL(`DELETE FROM kv WHERE k >= ? AND k < ?`, tuple.MustEncode(PrefixDue, m.queue), tuple.RangeEnd(tuple.MustEncode(PrefixDue, m.queue)))
		})
	})
}
