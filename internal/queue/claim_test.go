package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// put sends bodies as one commit and returns their ids.
func (f *fixture) put(queue string, delay time.Duration, bodies ...any) (ids []string) {
	f.t.Helper()
	msgs, err := Encode(queue, bodies, durable.SendOptions{Delay: delay})
	if err != nil {
		f.t.Fatal(err)
	}
	p := kv.NewPlan()
	AddSend(p, msgs)
	f.commit(p)
	for _, m := range msgs {
		ids = append(ids, m.ID)
	}
	return ids
}

// raw stores an entry as somebody else would.
func (f *fixture) raw(key []byte, value string) {
	f.t.Helper()
	f.commit(kv.NewPlan().Set(key, value, 0))
}

func newClaim(queue string) claim {
	return claim{queue: queue, id: uuid.NewString(), replica: "r1", visibility: time.Hour, maxAttempts: 5, retention: 24 * time.Hour,
		limit: 10, bytes: 4 << 20, suspect: true}
}

// claim runs a claim as a poll does. It returns what was taken, and how many
// messages died in it.
func (f *fixture) claim(c claim) (taken []held, buried int) {
	f.t.Helper()
	res := libsqltest.MustBatch(f.t, f.db, libsql.Write, c.bury(), c.take())
	taken, err := readHeld(c.queue, res[1])
	if err != nil {
		f.t.Fatal(err)
	}
	return taken, len(res[0].Rows)
}

// expire ends all claims and delays of a queue, one second ago.
func (f *fixture) expire(queue string) {
	f.t.Helper()
	f.SQL(`UPDATE kv SET k = CAST(`+at(kv.Now+` - 1000`)+` || `+rest(len(dueKey(queue)))+` AS BLOB) WHERE k >= ?1 AND k < ?2`, dueKey(queue), tuple.RangeEnd(dueKey(queue)))
}

func idsOf(list []held) (ids []string) {
	for _, h := range list {
		ids = append(ids, h.id)
	}
	return ids
}

func (f *fixture) settle(s settlement) (names []string) {
	f.t.Helper()
	p := kv.NewPlan()
	results := s.add(p)
	v := f.commit(p)
	for _, i := range results {
		for _, row := range v.Results[i].Rows {
			b, _ := row[0].([]byte)
			names = append(names, string(b))
		}
	}
	return names
}

func TestClaimAndSettle(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		ids := f.put("q", 0, "a", "b", "c", "d", "e")
		f.put("q", time.Hour, "later")
		f.put("qq", 0, "other")
		c := newClaim("q")
		c.limit = 4
		taken, _ := f.claim(c)
		if got := idsOf(taken); !slices.Equal(got, ids[:4]) {
			t.Fatalf("claimed %v of %v", got, ids)
		}
		for _, h := range taken {
			if h.Attempts != 0 || h.Claim != c.id || h.ClaimedBy != "r1" || h.left < 59*time.Minute || h.left > time.Hour || !near(h.SentAt, f.NowMs()) {
				t.Errorf("%+v", h)
			}
		}
		second, _ := f.claim(newClaim("q"))
		if got := idsOf(second); !slices.Equal(got, ids[4:]) {
			t.Fatalf("the second claim got %v", got)
		}
		// The other claim's messages are not touched, whoever names them.
		s := settlement{queue: "q", claim: c.id, retention: time.Hour,
			acks:  [][]byte{taken[0].key, second[0].key},
			again: []move{{key: taken[1].key, delay: 30 * time.Minute, counted: true, err: "no \"luck\""}, {key: taken[2].key}, {key: second[0].key}},
			dead:  []move{{key: taken[3].key, counted: true, err: "poison"}, {key: second[0].key}},
		}
		names := f.settle(s)
		if len(names) != 4 || names[0] != name("q", taken[0].key) || names[3] != name("q", taken[3].key) {
			t.Fatalf("settled %q", names)
		}
		if again := f.settle(s); len(again) != 0 {
			t.Errorf("settled twice: %q", again)
		}
		third, _ := f.claim(newClaim("q"))
		if got := idsOf(third); !slices.Equal(got, ids[2:3]) || third[0].Attempts != 0 || third[0].Error != "" {
			t.Errorf("what was handed back: %+v", third)
		}
		f.expire("q")
		c = newClaim("q")
		c.givenUp = []string{second[0].Claim, third[0].Claim}
		fourth, _ := f.claim(c)
		for i, want := range []struct {
			id       string
			attempts int
			err      string
		}{{ids[1], 1, `no "luck"`}, {ids[2], 0, ""}, {ids[4], 0, ""}} {
			if h := fourth[i]; h.id != want.id || h.Attempts != want.attempts || h.Error != want.err {
				t.Errorf("%d: %+v", i, h)
			}
		}
		if string(fourth[3].Body) != `"later"` {
			t.Errorf("%+v", fourth[3])
		}
		for m, err := range Peek(t.Context(), f.s, "q", true, 0) {
			if err != nil || m.ID != ids[3] || m.Attempts != 1 || m.Error != "poison" || m.Claim != "" || string(m.Body) != `"d"` {
				t.Errorf("%+v %v", m, err)
			}
		}
		if n := f.number(`SELECT max(expires_at) FROM kv WHERE k >= ? AND k < ?`, deadKey("q"), tuple.RangeEnd(deadKey("q"))); !near(n, f.NowMs()+hour) {
			t.Errorf("the dead letter is kept until %d", n)
		}
	})
}

// A claim that was left counts as a delivery, and the last one is buried.
func TestCrashes(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		id := f.put("q", 0, map[string]int{"n": 1})[0]
		for n := range 5 {
			taken, buried := f.claim(newClaim("q"))
			if len(taken) != 1 || taken[0].Attempts != n || taken[0].Crashes != n || buried != 0 {
				t.Fatalf("delivery %d: %+v, %d buried", n+1, taken, buried)
			}
			f.expire("q")
		}
		if taken, buried := f.claim(newClaim("q")); len(taken) != 0 || buried != 1 {
			t.Fatalf("after the last one: %+v, %d buried", taken, buried)
		}
		for m, err := range Peek(t.Context(), f.s, "q", true, 0) {
			if err != nil || m.ID != id || m.Attempts != 5 || !strings.Contains(m.Error, "died") || m.Claim != "" {
				t.Errorf("%+v %v", m, err)
			}
		}
		if n, err := Redrive(t.Context(), f.s, "q", ""); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		taken, _ := f.claim(newClaim("q"))
		if len(taken) != 1 || taken[0].Attempts != 0 || taken[0].Crashes != 0 || taken[0].Error != "" || f.number(`SELECT count(*) FROM kv WHERE expires_at IS NOT NULL`) != 0 {
			t.Errorf("after redrive: %+v", taken)
		}
	})
}

// A message that kills its process is delivered by itself from its second time
// on, so that those beside it live.
func TestSuspectsAreAlone(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		ids := f.put("q", 0, 0, 1, 2)
		for range 2 {
			if taken, _ := f.claim(newClaim("q")); len(taken) != 3 {
				t.Fatalf("%d", len(taken))
			}
			f.expire("q")
		}
		f.put("q", 0, "new")
		f.expire("q")
		var all []string
		for range 3 {
			taken, _ := f.claim(newClaim("q"))
			if len(taken) != 1 || taken[0].Crashes != 2 {
				t.Fatalf("%+v", taken)
			}
			all = append(all, taken[0].id)
		}
		if slices.Sort(all); !slices.Equal(all, ids) {
			t.Errorf("%v", all)
		}
		f.expire("q")
		c := newClaim("q")
		c.suspect = false
		if taken, _ := f.claim(c); len(taken) != 1 || string(taken[0].Body) != `"new"` {
			t.Errorf("without suspects: %+v", taken)
		}
	})
}

func TestLostAnswer(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		ids := f.put("q", 0, 1, 2)
		lost, other := newClaim("q"), newClaim("q")
		f.claim(lost)
		f.put("q", 0, 3)
		f.claim(other)
		read := func() []held {
			out, err := readHeld("q", libsqltest.MustBatch(t, f.db, libsql.Read, locate("q", lost.id, time.Hour))[0])
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		back := read()
		if !slices.Equal(idsOf(back), ids) || back[0].Claim != lost.id || back[0].left > time.Hour || back[0].left < 59*time.Minute {
			t.Fatalf("%+v", back)
		}
		// A renewal moves them, and its keys are the ones that count.
		p := kv.NewPlan()
		n := addRenew(p, "q", lost.id, [][]byte{back[0].key, back[1].key}, 2*time.Hour)
		renewed, err := readHeld("q", f.commit(p).Results[n])
		if err != nil || !slices.Equal(idsOf(renewed), ids) || renewed[0].left < 119*time.Minute {
			t.Fatalf("%+v %v", renewed, err)
		}
		if names := f.settle(settlement{queue: "q", claim: lost.id, acks: [][]byte{back[0].key}}); len(names) != 0 {
			t.Error("settled by a key that it has no more")
		}
		if names := f.settle(settlement{queue: "q", claim: lost.id, acks: [][]byte{renewed[0].key, renewed[1].key}}); len(names) != 2 {
			t.Error("not settled")
		}
		if left := read(); len(left) != 0 {
			t.Errorf("%+v", left)
		}
	})
}

func TestPauseStopsClaims(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		f.put("q", 0, 1)
		c := newClaim("q")
		f.claim(c)
		f.expire("q")
		if err := Pause(t.Context(), f.s, "q", "me"); err != nil {
			t.Fatal(err)
		}
		c = newClaim("q")
		c.maxAttempts = 1 // it would be buried too
		if taken, buried := f.claim(c); len(taken)+buried != 0 {
			t.Error("claimed from a paused queue")
		}
		i, err := Inspect(t.Context(), f.s, "q")
		if err != nil || i.Due != 1 || !i.Paused || i.PausedBy != "me" || !near(i.PausedAt, f.NowMs()) || *i.OldestMs < 1000 || *i.OldestMs > 60_000 {
			t.Errorf("%+v %v", i, err)
		}
		if was, err := Resume(t.Context(), f.s, "q"); !was || err != nil {
			t.Error(was, err)
		}
		if was, err := Resume(t.Context(), f.s, "q"); was || err != nil {
			t.Error(was, err)
		}
		if taken, _ := f.claim(newClaim("q")); len(taken) != 1 {
			t.Error("not claimed after the pause")
		}
	})
}

// What is in the way is put away, and nobody's entry stops the others.
func TestStrangeEntries(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		key := func(id any) []byte { return tuple.MustEncode(PrefixDue, "q", 1000, id) }
		f.raw(key("older"), `{"body": {"n": 12345678901234567890}, "attempts": 2}`)
		f.raw(key("bare"), `{}`)
		f.raw(key("odd"), `{"body":1,"attempts":"3","crashes":{},"sent_at":"x","claim":[1]}`)
		f.raw(key("twice"), `{"body":"at 1000"}`)
		f.raw(tuple.MustEncode(PrefixDue, "q", 2000, "twice"), `{"body":"at 2000"}`)
		f.raw(key(7), `{"body":"number id"}`)
		f.raw(tuple.MustEncode(PrefixDue, "q", 1000), `{"body":"no id"}`)
		f.raw(key("broken"), `{"body":`)
		f.raw(key("list"), `[1]`)
		f.raw(key("huge"), `{"body":"`+strings.Repeat("a", maxRow)+`"}`)
		f.raw(tuple.MustEncode(PrefixDue, "q", "text", "x"), `{"body":"no time"}`)
		f.put("q", 0, "mine")
		c := newClaim("q")
		c.limit = 50
		taken, buried := f.claim(c)
		if buried != 3 {
			t.Errorf("%d buried", buried)
		}
		var got []string
		for _, h := range taken {
			got = append(got, fmt.Sprintf("%s %d %s", h.id, h.Attempts, h.Body))
			if h.SentAt == 0 != (string(h.Body) != `"mine"`) {
				t.Errorf("%+v", h)
			}
		}
		slices.Sort(got)
		for _, want := range []string{`older 2 {"n":12345678901234567890}`, `bare 0 null`, `odd 4 1`} {
			if !slices.Contains(got, want) {
				t.Errorf("no %s in %q", want, got)
			}
		}
		if len(got) != 7 { // of two with one id the second waits
			t.Errorf("%q", got)
		}
		if taken, _ = f.claim(newClaim("q")); len(taken) != 1 || taken[0].id != "twice" {
			t.Errorf("%+v", taken)
		}
		dead := map[string]Seen{}
		for m, err := range Peek(t.Context(), f.s, "q", true, 0) {
			if err != nil {
				t.Fatal(err)
			}
			dead[m.ID] = m
		}
		if m := dead["broken"]; string(m.Body) != `"{\"body\":"` || !strings.Contains(m.Error, "no JSON object") {
			t.Errorf("%+v", m)
		}
		if m := dead["huge"]; len(m.Body) != maxRow+2 || !strings.Contains(m.Error, "too large") {
			t.Errorf("%d bytes, %s", len(m.Body), m.Error)
		}
	})
}

func TestBodiesStayExact(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		bodies := []string{
			`123456789012345678901234567890.1234567890`, `-0`, `1E+2`, `0.10`, `9007199254740993`, `"\u0000\ud800\/\"é` + "\u2028😀" + `"`,
			`{"b":1,"a":[],"b":{"":null}}`, `true`, `null`, `""`, `"<script>&"`, strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		}
		for i, b := range bodies {
			f.put(fmt.Sprint("q", i), 0, json.RawMessage(b))
		}
		for i, want := range bodies {
			queue := fmt.Sprint("q", i)
			for range 3 { // crashed, failed, dead and driven again
				taken, _ := f.claim(newClaim(queue))
				if len(taken) != 1 || string(taken[0].Body) != want {
					t.Errorf("%s: %+v", want, taken)
				}
				f.settle(settlement{queue: queue, claim: taken[0].Claim, retention: time.Hour, dead: []move{{key: taken[0].key, counted: true, err: `"'\u2028` + "\u2028"}}})
				if n, err := Redrive(t.Context(), f.s, queue, taken[0].id); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				f.claim(newClaim(queue))
				f.expire(queue)
			}
		}
	})
}

// The largest bodies in many queues stay under the bound of a poll.
func TestBytesOfAClaim(t *testing.T) {
	f := newFixture(t, libsqltest.Wire)
	f.put("q", 0, strings.Repeat("a", MaxBody-2), strings.Repeat("b", MaxBody-2), strings.Repeat("c", MaxBody-2))
	c := newClaim("q")
	c.bytes = 100
	if taken, _ := f.claim(c); len(taken) != 1 {
		t.Errorf("the first one always passes: %d", len(taken))
	}
	c = newClaim("q")
	c.bytes = 2*MaxBody + 1000
	if taken, _ := f.claim(c); len(taken) != 2 {
		t.Errorf("%d", len(taken))
	}
}
