package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// lastReader is a caller that repeats until something can be read: all is quiet.
type lastReader struct{ w *world }

func (l lastReader) Do(method, path, body string, headers ...string) (a fleettest.Answer) {
	for i, deadline := 0, time.Now().Add(patience); time.Now().Before(deadline) && l.w.ctx.Err() == nil; i++ {
		a = l.w.caller(l.w.slots[i%slots]).Do(method, path, body, headers...)
		if a.Status != 0 && a.Status < 500 {
			break
		}
		l.w.sleep(50 * time.Millisecond)
	}
	return a
}

// each runs a check of each element, some at a time.
func each[T any](list []T, check func(T)) {
	var wg sync.WaitGroup
	places := make(chan struct{}, 4)
	for _, x := range list {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			check(x)
		})
	}
	wg.Wait()
}

// checkHistories settles and checks all histories.
func (w *world) checkHistories() {
	each(w.stage.histories, func(h *fleettest.History) {
		if err := h.Settle(lastReader{w}, int(w.stage.clients.Add(1))); err != nil {
			w.violate("answers", "quiet", h.Name, "the last read: %v", err)
			return
		}
		problems, calls := h.Check()
		for name, n := range h.Acknowledged() {
			w.note(func(r *figures.Robustness) { r.Acknowledged[name] += n })
		}
		w.note(func(r *figures.Robustness) { r.Histories++; r.HistoryCalls += calls })
		for _, p := range problems {
			w.problem(h.Name, p)
		}
	})
}

// problem sorts a problem that a history or ledger tells.
func (w *world) problem(object, text string) {
	switch {
	case strings.Contains(text, "was answered 500 ") && w.mirrorsSuffered():
		// The handler lost its database under its feet: nothing was committed.
		w.Logf("%s: %s", object, text)
	case strings.HasPrefix(text, "drawn in "):
		w.Logf("%s: %s", object, text)
	case strings.HasPrefix(text, "lost: "):
		w.lost(object, "%s", text)
	case strings.HasPrefix(text, "doubled: "):
		w.doubled(object, "%s", text)
	case strings.HasPrefix(text, "applied: "):
		w.applied(object, "%s", text)
	case strings.HasPrefix(text, "no verdict"):
		w.violateAnd(func(r *figures.Robustness) { r.Timeouts++ }, "single writer", "order", object, "%s", text)
	default:
		w.violate("single writer", "order", object, "%s", text)
	}
}

// mirrorsSuffered reports whether databases were deleted or damaged while
// handlers may have worked with them.
func (w *world) mirrorsSuffered() bool {
	return slices.ContainsFunc(w.plan.steps, func(s step) bool { return strings.HasPrefix(s.fault, "mirrors ") })
}

// checkLedgers compares the ledgers with what their callers were answered.
func (w *world) checkLedgers() {
	each(w.stage.ledgers, func(l *fleettest.Ledger) {
		problems, _ := l.Problems(lastReader{w})
		for _, p := range problems {
			w.problem("note/"+l.Name, p)
		}
		acknowledged := l.Statuses()[http.StatusOK]
		w.note(func(r *figures.Robustness) { r.Acknowledged["ledgers"] += acknowledged })
	})
}

// checkSQL compares the lab's own database with what callers were answered.
func (w *world) checkSQL() {
	there := map[string]int{}
	a := lastReader{w}.Do(http.MethodPost, "sql", `{"sql":"SELECT op, count(*) FROM chaos GROUP BY op"}`)
	var res []struct{ Rows [][]any }
	if err := json.Unmarshal([]byte(a.Body), &res); err != nil || len(res) != 1 {
		w.violate("answers", "quiet", "sql", "the last read: %v", a)
		return
	}
	for _, row := range res[0].Rows {
		n, _ := row[1].(float64)
		there[fmt.Sprint(row[0])] = int(n)
	}
	for op, a := range w.stage.sqlOps {
		w.compare("sql/"+op, a, there[op])
	}
}

// compare compares how often something is there with what its caller was
// answered.
func (w *world) compare(object string, a fleettest.Answer, n int) {
	switch kind := judge(a, n); kind {
	case "":
	case "doubled":
		w.doubled(object, "it was answered %v, and is there %d times", a, n)
	case "lost":
		w.lost(object, "it was answered %v, and is not there", a)
	case "applied":
		w.applied(object, "it was answered %v, and is there", a)
	default:
		w.violate("answers", kind, object, "it was answered %v", a)
	}
}

// judge says what is wrong when something is there so often of which the caller
// was answered this, "" when nothing is.
func judge(a fleettest.Answer, n int) string {
	switch {
	case n > 1:
		return "doubled"
	case a.Status/100 == 2 && n == 0:
		return "lost"
	case a.Refused() && n > 0:
		return "applied"
	case a.Status/100 != 2 && !a.Refused() && !a.Unknown() && a.Status != 0:
		return "answer"
	}
	return ""
}

// checkFiles compares the bucket with what callers were answered.
func (w *world) checkFiles() {
	each(w.stage.files, func(f *file) {
		f.saw(lastReader{w}.Do(http.MethodGet, "bucket/"+f.key, ""))
		for _, text := range f.wrong {
			w.violate("buckets", "bucket", f.key, "%s", text)
		}
	})
}

// A delivery is what the lab's consumer has recorded of a message.
type delivery struct {
	Seq, Attempts int
	ID, Replica   string
	Body          ask
}

// checkMessages compares the deliveries and the dead letters with what senders
// were answered, and with what the messages asked of their consumer.
func (w *world) checkMessages() {
	seen := map[string][]delivery{}
	total := 0
	for after := 0; ; {
		var page struct{ Seen []delivery }
		a := lastReader{w}.Do(http.MethodGet, fmt.Sprintf("queue/default/seen?after=%d", after), "")
		if err := json.Unmarshal([]byte(a.Body), &page); err != nil || a.Status != http.StatusOK {
			w.violate("answers", "quiet", "queue/default", "the last read: %v", a)
			return
		}
		if len(page.Seen) == 0 {
			break
		}
		for _, d := range page.Seen {
			seen[d.Body.Op] = append(seen[d.Body.Op], d)
			after = d.Seq
		}
		total += len(page.Seen)
	}
	dead, err := w.deadLetters()
	if err != nil {
		w.Errorf("list dead letters: %v", err)
		return
	}
	sent, more := 0, 0
	for op, a := range w.stage.messages {
		m, object := w.stage.asked[op], "message/"+op
		there := seen[op]
		if a.Status == http.StatusOK {
			sent++
		}
		switch kind := judgeMessage(m, a, there, dead[op]); kind {
		case "":
		case "doubled":
			w.doubled(object, "it was sent once and is several messages: %+v", there)
		case "applied":
			w.applied(object, "its sender was answered %v, and it was delivered %d times", a, len(there))
		case "lost":
			w.violateAnd(func(r *figures.Robustness) { r.Lost++ }, "queues", "message", object, "it asks for %+v, was delivered %d times and is no dead letter", m, len(there))
		default:
			w.violate("answers", kind, object, "its sender was answered %v", a)
		}
		if m.Fail < 1000 {
			more += max(0, len(there)-1-m.Fail-m.Unacked)
		}
	}
	for op := range seen {
		if _, ok := w.stage.messages[op]; !ok {
			w.violate("queues", "message", op, "nobody sent it")
		}
	}
	letters := 0
	for _, n := range dead {
		letters += n
	}
	w.note(func(r *figures.Robustness) {
		r.Messages, r.Deliveries, r.Duplicates, r.DeadLetter = sent, total, more, letters
		r.Operations["message"] = total
	})
}

// judgeMessage says what is wrong with a message, "" when nothing is: it was
// delivered until a delivery that it did not ask to fail, or it is a dead letter.
func judgeMessage(m ask, a fleettest.Answer, there []delivery, dead int) string {
	done, ids := false, map[string]bool{}
	for _, d := range there {
		done = done || d.Attempts > m.Fail && d.Attempts > m.Unacked
		ids[d.ID] = true
	}
	n := len(ids)
	if n == 0 {
		n = min(1, dead)
	}
	if kind := judge(a, n); kind != "" {
		return kind
	}
	if a.Status == http.StatusOK && !done && dead == 0 {
		return "lost"
	}
	return ""
}

// checkAlarms compares the runs of all alarms with what was asked for.
func (w *world) checkAlarms() {
	var names []string
	for name := range w.stage.alarms {
		names = append(names, name)
	}
	slices.Sort(names)
	dead, err := w.deadAlarms()
	if err != nil {
		w.Errorf("list dead alarms: %v", err)
		return
	}
	each(names, func(name string) { w.checkAlarm(name, dead[id(name)]) })
}

func (w *world) checkAlarm(name string, dead bool) {
	al, object := w.stage.alarms[name], "alarm/"+name
	a := lastReader{w}.Do(http.MethodGet, object, "")
	var got struct {
		Pending  *int64
		Firings  []struct{ At, Due, Retry int64 }
		Attempts []struct{ Retry int64 }
	}
	if err := json.Unmarshal([]byte(a.Body), &got); a.Status != http.StatusOK || err != nil {
		w.violate("answers", "quiet", object, "the last read: %v", errors.Join(err, errors.New(a.String())))
		return
	}
	last, firings := al.sets[len(al.sets)-1], len(got.Firings)
	switch kind := judgeAlarm(last, firings, dead); kind {
	case "":
	case "lost":
		w.violateAnd(func(r *figures.Robustness) { r.Lost++ }, "alarms", "alarm", object, "it was answered %v and fired %d times after %d attempts; pending: %v", last, firings, len(got.Attempts), got.Pending)
	case "applied":
		w.applied(object, "it was answered %v and fired", last)
	case "doubled":
		w.violateAnd(func(r *figures.Robustness) { r.Doubled++ }, "alarms", "alarm", object, "it fired %d times: %+v", firings, got.Firings)
	default:
		w.violate("answers", kind, object, "it was answered %v", last)
	}
	w.note(func(r *figures.Robustness) {
		if last.Status == http.StatusOK {
			r.Alarms++
		}
		r.AlarmsFired += firings
		r.AlarmAttempts += len(got.Attempts)
		if dead {
			r.AlarmsDead++
		}
		for _, f := range got.Firings {
			r.Lateness = append(r.Lateness, f.At-f.Due)
		}
	})
}

// judgeAlarm says what is wrong with an alarm, "" when nothing is. What was set
// last decides: of an alarm that was set far off before nothing is left, or it
// waits.
func judgeAlarm(last fleettest.Answer, firings int, dead bool) string {
	kind := judge(last, firings)
	if kind == "lost" && dead {
		return "" // it was given up, and is kept as that
	}
	return kind
}
