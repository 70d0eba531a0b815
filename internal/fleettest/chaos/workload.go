package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
)

// A stage is what clients use: some objects at a time. One whose history is full
// gives way to another.
type stage struct {
	w *world

	mu        sync.Mutex
	counters  []*fleettest.History
	notes     []*fleettest.History
	ledgers   []*fleettest.Ledger
	histories []*fleettest.History // all there ever were
	tags      map[*fleettest.History]string
	clients   atomic.Int64
	sequence  atomic.Int64

	// sqlOps and messages are what callers were answered, alarms what they set,
	// and files what they put.
	sqlOps, messages map[string]fleettest.Answer
	asked            map[string]ask // what a message asks of its consumer
	alarms           map[string]timer
	files            []*file
}

// atOnce is how many objects of each kind are used at a time.
const atOnce = 8

func newStage(w *world) *stage {
	return &stage{
		w: w, tags: map[*fleettest.History]string{}, sqlOps: map[string]fleettest.Answer{}, messages: map[string]fleettest.Answer{},
		asked: map[string]ask{}, alarms: map[string]timer{},
	}
}

// prepare makes what there is from the beginning.
func (s *stage) prepare() {
	for range atOnce {
		s.mu.Lock()
		s.counters = append(s.counters, s.counter())
		s.mu.Unlock()
		s.notes = append(s.notes, s.note())
		s.ledgers = append(s.ledgers, fleettest.NewLedger(s.w.name("ledger")))
	}
	a := s.w.caller(s.w.slots[0]).Do(http.MethodPost, "sql", `{"sql":"CREATE TABLE IF NOT EXISTS chaos(op TEXT NOT NULL)"}`)
	if a.Status != http.StatusOK {
		s.w.Fatalf("make the table of the clients: %v", a)
	}
}

// counter returns the history of a new counter. The caller holds mu.
func (s *stage) counter() *fleettest.History {
	h := fleettest.NewHistory("counter", s.w.name("c"))
	s.histories = append(s.histories, h)
	return h
}

// note returns the history of a new note, of which is known that it is there.
func (s *stage) note() *fleettest.History {
	h := fleettest.NewHistory("note", s.w.name("n"))
	random := rand.New(rand.NewPCG(s.w.plan.Seed, 7))
	for deadline := time.Now().Add(patience); ; {
		a, _ := h.Do(s.w.caller(s.w.pick(random)), int(s.clients.Add(1)), fleettest.Op{Kind: "put", Body: "first"}, s.w.fault.now)
		if a.Status == http.StatusCreated || a.Status == http.StatusNoContent {
			break
		}
		if time.Now().After(deadline) || s.w.ctx.Err() != nil {
			s.w.Fatalf("the first put of %s: %v", h.Name, a)
		}
		s.w.sleep(50 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.histories = append(s.histories, h)
	return h
}

// replace has another object take the place of a full one.
func (s *stage) replace(list *[]*fleettest.History, i int, full *fleettest.History) {
	isNote := list == &s.notes
	var fresh *fleettest.History
	if isNote {
		fresh = s.note()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if (*list)[i] != full {
		return
	}
	if !isNote {
		fresh = s.counter()
	}
	(*list)[i] = fresh
}

// some is the path of an object in use.
func (s *stage) some(r *rand.Rand) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := [][]*fleettest.History{s.counters, s.notes}[r.IntN(2)]
	return list[r.IntN(len(list))].Name
}

// client makes calls until stop is closed.
func (s *stage) client(n int, stop <-chan struct{}) {
	r := rand.New(rand.NewPCG(s.w.plan.Seed, 100+uint64(n)))
	id, total := int(s.clients.Add(1)), 0
	for _, m := range s.w.plan.mix {
		total += m.n
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		// All that is drawn for a call is drawn before it, whatever it is: so the
		// sequence of a client is the same for a seed.
		kind, k := "", r.IntN(total)
		for _, m := range s.w.plan.mix {
			if kind = m.kind; k < m.n {
				break
			}
			k -= m.n
		}
		which, write, extra := r.IntN(atOnce), r.IntN(5), r.Int64N(1_000_000)
		random := rand.New(rand.NewPCG(r.Uint64(), 8))
		place := s.w.slots[which%slots] // most objects have a place where they are used most
		if _, open := place.get(); extra%5 > 2 || !open || !place.sql.passes() {
			place = s.w.pick(random)
		}
		to := s.w.caller(place)
		a := s.call(to, kind, &id, which, write, extra, random)
		s.w.count(kind)
		if a.Refused() || a.Status == 0 {
			s.w.sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
	}
}

// call makes one call.
func (s *stage) call(to caller, kind string, id *int, which, write int, extra int64, random *rand.Rand) fleettest.Answer {
	switch kind {
	case "counter", "note":
		return s.history(to, kind, id, which, write, extra)
	case "ledger":
		s.mu.Lock()
		l := s.ledgers[which]
		s.mu.Unlock()
		return l.Append(to)
	case "sql":
		op := s.op()
		s.keep(s.sqlOps, op, fleettest.Answer{})
		a := to.Do(http.MethodPost, "sql", fmt.Sprintf(`{"sql":"INSERT INTO chaos VALUES(?)","args":[%q]}`, op))
		s.keep(s.sqlOps, op, a)
		return a
	case "slow":
		return s.beSlow(to, which)
	case "alarm":
		return s.setAlarm(to, write, extra)
	case "queue":
		return s.send(to, extra)
	}
	return s.useFile(to, write, random)
}

func (s *stage) op() string { return fmt.Sprintf("op%d", s.sequence.Add(1)) }

func (s *stage) keep(m map[string]fleettest.Answer, op string, a fleettest.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[op] = a
}

func (s *stage) history(to caller, kind string, id *int, which, write int, extra int64) fleettest.Answer {
	list := &s.counters
	if kind == "note" {
		list = &s.notes
	}
	s.mu.Lock()
	h := (*list)[which]
	tag := s.tags[h]
	s.mu.Unlock()
	o := fleettest.Op{Kind: "read"}
	switch {
	case kind == "note" && write > 1:
		o = fleettest.Op{Kind: "put", Body: fmt.Sprintf("body %d", s.sequence.Add(1))}
		if extra%3 == 0 {
			o.Match = tag
		}
		if extra%40 == 1 { // too large for a row of the log
			o.Body += string(slices.Repeat([]byte{'.'}, 3*inlineLimit))
		}
	case kind == "note":
		o.Kind = "get"
	case write > 1:
		o = fleettest.Op{Kind: "add", ID: s.op(), N: 1 + extra}
	}
	a, ok := h.Do(to, *id, o, s.w.fault.now)
	if !ok {
		s.replace(list, which, h)
		return fleettest.Answer{Status: http.StatusOK}
	}
	if a.Unknown() || a.Status == 0 {
		*id = int(s.clients.Add(1)) // that call may still be under way
	}
	if tag := a.Header.Get("ETag"); tag != "" {
		s.mu.Lock()
		s.tags[h] = tag
		s.mu.Unlock()
	}
	return a
}

// slowWrite is an event that works for a while before it writes: what ends its
// lease meanwhile finds it in the midst of that. It leaves the note itself alone.
const slowWrite = `[{"sql":"WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 300000) SELECT count(*) FROM c"},` +
	`{"sql":"CREATE TABLE IF NOT EXISTS slow(x)"},{"sql":"INSERT INTO slow VALUES(1)"}]`

func (s *stage) beSlow(to caller, which int) fleettest.Answer {
	s.mu.Lock()
	h := s.notes[which]
	s.mu.Unlock()
	return to.Do(http.MethodPost, h.Name+"/sql", slowWrite)
}

// A timer is what was asked of a timer.
type timer struct {
	// sets are the answers to what set it, one after the other.
	sets []fleettest.Answer
	fail int
}

// setAlarm sets the alarm of a new object, some of which fail first, and some of
// which are set far off before.
func (s *stage) setAlarm(to caller, write int, extra int64) fleettest.Answer {
	name, al := s.w.name("timer"), timer{}
	in := time.Duration(extra%2500) * time.Millisecond
	if write == 0 {
		al.fail = 1
	}
	var a fleettest.Answer
	if write == 1 {
		a = to.Do(http.MethodPost, "alarm/"+name+"?in=1h", "")
		al.sets = append(al.sets, a)
	}
	if len(al.sets) == 0 || a.Status == http.StatusOK {
		a = to.Do(http.MethodPost, fmt.Sprintf("alarm/%s?in=%v&fail=%d", name, in, al.fail), "")
		al.sets = append(al.sets, a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms[name] = al
	return a
}

// An ask is what the body of a message asks of the consumer.
type ask struct {
	Op      string `json:"op"`
	Fail    int    `json:"fail,omitempty"`
	Unacked int    `json:"unacked,omitempty"`
	Sleep   int    `json:"sleep,omitempty"`
}

// send sends a message. Some fail, some are not acknowledged at once, some take
// a while, and a few fail always.
func (s *stage) send(to caller, extra int64) fleettest.Answer {
	m := ask{Op: s.op()}
	switch extra % 50 {
	case 0, 1:
		m.Fail = 1
	case 2, 3:
		m.Unacked = 1
	case 4:
		m.Sleep = 200
	case 5:
		m.Fail = 1000
	}
	body, err := json.Marshal(m)
	if err != nil {
		s.w.Fatal(err)
	}
	s.mu.Lock()
	s.messages[m.Op], s.asked[m.Op] = fleettest.Answer{}, m
	s.mu.Unlock()
	a := to.Do(http.MethodPost, "queue/default/send", string(body))
	s.keep(s.messages, m.Op, a)
	return a
}
