package migrate

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"sync"
)

// An Outcome is what became of an item.
type Outcome string

// The outcomes.
const (
	// Moved: it is at the target now, and was compared as asked.
	Moved Outcome = "moved"
	// Already: it was moved before, or the target had the same.
	Already Outcome = "already"
	// Conflict: the target holds something else, which was left as it is.
	Conflict Outcome = "conflict"
	// Skipped: it cannot be moved as it is, or was not to be.
	Skipped Outcome = "skipped"
	// Failed: it could not be moved or verified.
	Failed Outcome = "failed"
	// Warned: it was or will be moved, and somebody should look at it.
	Warned Outcome = "warned"
	// Left: it is nothing that a move is for.
	Left Outcome = "left"
)

// bad reports whether an outcome is one of a move that is not complete.
func (o Outcome) bad() bool {
	return o == Conflict || o == Skipped || o == Failed || o == Warned
}

// A Line is a line of the proof about one item.
type Line struct {
	Type    string  `json:"type"` // "item"
	Kind    Kind    `json:"kind"`
	Item    string  `json:"item"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"`
	// Verified says how it was compared: "full", "counts" or "none"; empty when it
	// was not moved by this run.
	Verified Verify `json:"verified,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"`
	// The two sides, as they were compared.
	Source *Side `json:"source,omitempty"`
	Target *Side `json:"target,omitempty"`
}

// A Side is what was found on one side of an item.
type Side struct {
	// SHA256 is that of a body, or of the pages of a database without the table
	// of alarms.
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes"`
	// Content is the hash of the schema and all rows of an object, when its pages
	// had to change.
	Content string `json:"content_sha256,omitempty"`
	// Alarm is the time of the pending alarm.
	Alarm *int64 `json:"alarm,omitempty"`
	Rows  *int64 `json:"rows,omitempty"`
	// Tables are those of a SQL database, by name.
	Tables map[string]TableSide `json:"tables,omitempty"`
	// Messages are the messages of each queue.
	Messages map[string]int64  `json:"messages,omitempty"`
	Type     string            `json:"content_type,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// A TableSide is a table on one side.
type TableSide struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256,omitempty"`
}

// A Count sums up the items of a kind.
type Count struct {
	Items   int64 `json:"items"`
	Bytes   int64 `json:"bytes"`
	Moved   int64 `json:"moved"`
	Already int64 `json:"already"`
	Bad     int64 `json:"bad"`
	Left    int64 `json:"left"`
	// Rows are the rows and messages of what was moved.
	Rows int64 `json:"rows,omitempty"`
}

func (c *Count) add(o Count) {
	c.Items += o.Items
	c.Bytes += o.Bytes
	c.Moved += o.Moved
	c.Already += o.Already
	c.Bad += o.Bad
	c.Left += o.Left
	c.Rows += o.Rows
}

// maxLines bounds the items that a result names; the proof names all.
const maxLines = 1000

// A Result is what a run did, or a plan found.
type Result struct {
	Direction string `json:"direction"`
	DryRun    bool   `json:"dry_run"`
	Source    string `json:"source"`
	Target    string `json:"target"`
	Plan      string `json:"plan"`
	// Verify is how what was moved was compared.
	Verify Verify          `json:"verify"`
	Counts map[Kind]*Count `json:"counts"`
	// Begun: the store set was marked, so that nothing refused the move any more.
	Begun bool `json:"-"`
	// Complete: the run reached its end, and the mark of the move is gone.
	Complete bool `json:"complete"`
	// Problems are the items that did not move, or need a look; not all of them
	// when there are more than ProblemCount says.
	Problems     []Line `json:"problems"`
	ProblemCount int64  `json:"problem_count"`
	// Stopped is why the run ended before its end.
	Stopped string `json:"stopped,omitempty"`
}

// Total sums up all kinds.
func (r *Result) Total() Count {
	var t Count
	for _, c := range r.Counts {
		t.add(*c)
	}
	return t
}

// A proof writes lines of JSON, the last of which has the hash of those before.
type proof struct {
	mu   sync.Mutex
	w    *bufio.Writer
	hash hash.Hash
	err  error
}

func newProof(w io.Writer) *proof {
	if w == nil {
		w = io.Discard
	}
	return &proof{w: bufio.NewWriterSize(w, 64<<10), hash: sha256.New()}
}

func (p *proof) write(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(v)
	if err == nil {
		text = append(text, '\n')
		p.hash.Write(text)
		_, err = p.w.Write(text)
	}
	if p.err == nil {
		p.err = err
	}
}

// A trailer ends a proof.
type trailer struct {
	Type     string          `json:"type"` // "end"
	Complete bool            `json:"complete"`
	Stopped  string          `json:"stopped,omitempty"`
	Counts   map[Kind]*Count `json:"counts"`
	At       string          `json:"at"`
	// SHA256 is the hash of all lines before, so that a cut file is noticed.
	SHA256 string `json:"sha256"`
}

func (p *proof) end(t trailer) error {
	p.mu.Lock()
	t.Type, t.SHA256 = "end", hex.EncodeToString(p.hash.Sum(nil))
	p.mu.Unlock()
	p.write(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.w.Flush(); p.err == nil {
		p.err = err
	}
	if p.err != nil {
		return fmt.Errorf("write the report: %w", p.err)
	}
	return nil
}

// A tally collects what becomes of items.
type tally struct {
	mu     sync.Mutex
	result *Result
	proof  *proof
}

func (t *tally) count(k Kind) *Count {
	c := t.result.Counts[k]
	if c == nil {
		c = &Count{}
		t.result.Counts[k] = c
	}
	return c
}

// add takes a line about an item.
func (t *tally) add(l Line) {
	l.Type = "item"
	t.proof.write(l)
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.count(l.Kind)
	switch {
	case l.Outcome == Moved:
		c.Moved++
		if l.Source != nil && l.Source.Rows != nil {
			c.Rows += *l.Source.Rows
		}
	case l.Outcome == Already:
		c.Already++
	case l.Outcome == Left:
		c.Left++
		return
	default:
		c.Bad++
	}
	if l.Outcome.bad() {
		t.result.ProblemCount++
		if len(t.result.Problems) < maxLines {
			t.result.Problems = append(t.result.Problems, l)
		}
	}
}
