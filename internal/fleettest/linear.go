package fleettest

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTime bounds the check of one history. One that takes longer is as good as
// one that fails.
const checkTime = 2 * time.Minute

// A result is what a call answered, for the model of its object.
type result struct {
	value  int64  // of a counter, after the call
	tag    string // of a note
	status int
	// maybe is set when nothing was answered to a put that was seen.
	maybe bool
}

// Check reports what is wrong with a history that is over and settled: an
// answer that no order of the calls explains, a write that was acknowledged and
// is not there, one that was refused and is.
//
// A call whose outcome is unknown may have been applied at any time since, or
// never. The end tells which: a counter lists all that it has counted, and what
// each led to; and a put that nobody has ever seen, not even by its tag in a
// refusal, explains nothing (the first put is known, so there is always a
// note). So calls that were not applied are left out, which changes no verdict
// and saves the search from trying all subsets of them.
func (h *History) Check() (problems []string, ops int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if !c.done() && !c.answer.Refused() && !c.unknown() {
			problems = append(problems, fmt.Sprintf("%s was answered %v", describe(c.op), c.answer))
		}
	}
	model, history := noteModel, []porcupine.Operation(nil)
	if h.isNote() {
		history = h.noteOperations()
	} else {
		model = counterModel
		var wrong []string
		history, wrong = h.counterOperations()
		problems = append(problems, wrong...)
	}
	switch porcupine.CheckOperationsTimeout(model, history, checkTime) {
	case porcupine.Ok:
	case porcupine.Unknown:
		problems = append(problems, fmt.Sprintf("no verdict after %v", checkTime))
	default:
		problems = append(problems, "no order of the calls explains their answers")
	}
	if len(problems) > 0 {
		problems = append(problems, "drawn in "+h.draw(model, history))
	}
	return problems, len(history)
}

// draw writes the history as a page to look at, and returns its path.
func (h *History) draw(model porcupine.Model, history []porcupine.Operation) string {
	dir, err := os.MkdirTemp("", "dwk-history-")
	if err != nil {
		return err.Error()
	}
	path := filepath.Join(dir, strings.ReplaceAll(h.Name, "/", "-")+".html")
	_, info := porcupine.CheckOperationsVerbose(model, history, checkTime)
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		return err.Error()
	}
	return path
}

func operation(c call, out result) porcupine.Operation {
	o := porcupine.Operation{ClientId: c.client, Input: c.op, Output: out, Call: int64(c.from), Return: int64(c.to)}
	if c.unknown() {
		o.Return = math.MaxInt64
	}
	return o
}

// counterOperations are the calls that had an effect or saw something, and what
// the counter's list says against the others.
func (h *History) counterOperations() (out []porcupine.Operation, wrong []string) {
	counted := map[string]listed{}
	var sum int64
	for _, l := range h.list {
		if sum += l.N; l.Value != sum {
			wrong = append(wrong, fmt.Sprintf("op %s led to %d, the sum is %d", l.Op, l.Value, sum))
		}
		if _, twice := counted[l.Op]; twice {
			wrong = append(wrong, "doubled: op "+l.Op)
		}
		counted[l.Op] = l
	}
	for _, c := range h.calls {
		l, there := counted[c.op.ID]
		delete(counted, c.op.ID)
		switch {
		case c.op.Kind == "read" && c.done():
			out = append(out, operation(c, result{value: c.value()}))
		case c.op.Kind == "read":
		case c.done() && !there:
			wrong = append(wrong, fmt.Sprintf("lost: op %s was answered %v", c.op.ID, c.answer))
		case c.done() && (c.value() != l.Value || c.op.N != l.N):
			wrong = append(wrong, fmt.Sprintf("op %s was answered %v and led to %d", c.op.ID, c.answer, l.Value))
		case (c.answer.Refused() || c.answer.Status == http.StatusInternalServerError) && there:
			wrong = append(wrong, fmt.Sprintf("applied: op %s was answered %v", c.op.ID, c.answer))
		}
		if c.op.Kind == "add" && c.done() {
			out = append(out, operation(c, result{value: c.value()}))
		} else if c.op.Kind == "add" && there {
			out = append(out, operation(c, result{value: l.Value}))
		}
	}
	for id := range counted {
		wrong = append(wrong, "nobody sent op "+id)
	}
	return out, wrong
}

// noteOperations are the calls that had an effect, or may have had one that was
// seen, or saw something.
func (h *History) noteOperations() (out []porcupine.Operation) {
	seen := map[string]bool{}
	for _, c := range h.calls {
		if c.done() {
			seen[c.answer.Header.Get("ETag")] = true
			seen[c.op.Match] = seen[c.op.Match] || c.acknowledged()
		}
	}
	for _, c := range h.calls {
		switch {
		case c.done():
			out = append(out, operation(c, result{tag: c.answer.Header.Get("ETag"), status: c.answer.Status}))
		case c.unknown() && c.op.Kind == "put" && seen[c.op.tag()]:
			out = append(out, operation(c, result{maybe: true}))
		}
	}
	return out
}

// The state of a counter is its value.
var counterModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, in, out any) (bool, any) {
		value := state.(int64) + in.(Op).N
		return out.(result).value == value, value
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%s: %d", describe(in.(Op)), out.(result).value) },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// The state of a note is its tag, "" when there is none.
var noteModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		tag, o, r := state.(string), in.(Op), out.(result)
		matches := o.Match == "" || o.Match == tag
		switch {
		case r.maybe && matches:
			return true, o.tag()
		case r.maybe:
			return true, tag
		case o.Kind == "get":
			return r.tag == tag && (tag != "") == (r.status == http.StatusOK), tag
		case r.status == http.StatusPreconditionFailed:
			return !matches && r.tag == tag, tag
		}
		return matches && r.tag == o.tag() && (tag != "") == (r.status == http.StatusNoContent), o.tag()
	},
	DescribeOperation: func(in, out any) string {
		r := out.(result)
		return fmt.Sprintf("%s: %d %.7s", describe(in.(Op)), r.status, r.tag)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%.7s", state) },
}

func describe(o Op) string {
	switch {
	case o.Kind == "add":
		return fmt.Sprintf("add %d (%s)", o.N, o.ID)
	case o.Match != "":
		return fmt.Sprintf("put %.7s over %.7s", o.tag(), o.Match)
	case o.Kind == "put":
		return fmt.Sprintf("put %.7s", o.tag())
	}
	return o.Kind
}
