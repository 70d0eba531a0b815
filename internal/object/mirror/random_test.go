package mirror

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/superfly/ltx"

	"github.com/davidwkeith/dwk/internal/object/mirror/mirrortest"
)

var (
	randomSeed   = flag.Uint64("mirror.seed", 0, "seed of the random hand-over test; 0 draws one")
	randomEvents = flag.Int("mirror.events", 0, "events of the random hand-over test for each page size; 0 is a few")
)

// A memoryLog is the primary: a log that appends only to the head it was
// promised, and forgets single commits when it compacts.
type memoryLog struct {
	rows []logRow
	head Position
	id   uint64 // of the last commit
}

type logRow struct {
	min, max uint64
	data     []byte // nil for a commit without pages
}

// append adds a commit when the head is still the one that the writer saw.
func (l *memoryLog) append(pre Position, preID uint64, post Position, id uint64, row logRow) bool {
	if l.head != pre || l.id != preID {
		return false
	}
	l.rows = append(l.rows, row)
	l.head, l.id = post, id
	return true
}

// compact merges a run of rows that all have data.
func (l *memoryLog) compact(t *testing.T, from, to int) bool {
	var in []io.Reader
	for _, row := range l.rows[from:to] {
		if row.data == nil {
			return false
		}
		in = append(in, bytes.NewReader(row.data))
	}
	var out bytes.Buffer
	c, err := ltx.NewCompactor(&out, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	merged := logRow{min: uint64(c.Header().MinTXID), max: uint64(c.Header().MaxTXID), data: out.Bytes()}
	l.rows = append(l.rows[:from:from], append([]logRow{merged}, l.rows[to:]...)...)
	return true
}

// A replica is a mirror and the commit that it believes to be the head.
type replica struct {
	*Mirror
	id    uint64
	stats map[string]int
}

// catchUp brings the replica to the head.
func (r *replica) catchUp(t *testing.T, l *memoryLog) {
	t.Helper()
	for _, row := range l.rows {
		if row.max <= r.Position().TXID {
			continue
		}
		var err error
		if row.data == nil {
			err = r.Advance(row.max)
		} else {
			r.stats["apply"]++
			if err = r.Apply(row.data); err == nil {
				if sum := fileSum(t, r.Mirror); sum != r.Position().Checksum {
					t.Fatalf("file sum %016x after apply, position %s", sum, r.Position())
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if r.Position() != l.head {
		t.Fatalf("caught up to %s, head is %s", r.Position(), l.head)
	}
	r.id = l.id
}

// contentHash is the hash of all tables.
func contentHash(t *testing.T, m *Mirror) string {
	t.Helper()
	h := sha256.New()
	for _, name := range values(t, m, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name") {
		fmt.Fprintln(h, name)
		for _, v := range values(t, m, fmt.Sprintf("SELECT * FROM %q", name)) {
			fmt.Fprintf(h, "%T %v\n", v, v)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestRandomHandOver(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	events := *randomEvents
	if events == 0 {
		events = 120
		if testing.Short() {
			events = 40
		}
	}
	for _, pageSize := range []int{4096, 1024, 512} {
		t.Run(fmt.Sprint(pageSize), func(t *testing.T) {
			t.Logf("to repeat: -mirror.seed=%d -mirror.events=%d", seed, events)
			randomHandOver(t, pageSize, seed, events)
		})
	}
}

func randomHandOver(t *testing.T, pageSize int, seed uint64, events int) {
	r := rand.New(rand.NewPCG(seed, uint64(pageSize)))
	cfg := Config{PageSize: pageSize, CacheBytes: 100 << 10, MaxEntry: 64 << 20, CheckpointBytes: 2 << 20}
	var (
		log      memoryLog
		replicas [3]*replica
		hash     string // of the content at the head
		lastID   uint64
		stats    = map[string]int{}
	)
	for i := range replicas {
		replicas[i] = &replica{Mirror: newMirror(t, cfg), stats: stats}
	}
	for range events {
		m := replicas[r.IntN(len(replicas))]
		if stale := r.IntN(12) == 0; !stale {
			m.catchUp(t, &log)
			if _, pages := m.Size(); pages > 0 {
				if got := contentHash(t, m.Mirror); got != hash {
					t.Fatalf("at %s: content differs from that of the last writer", m.Position())
				}
			}
		} else {
			stats["stale"]++
		}
		pre, preID := m.Position(), m.id
		lastID++

		if r.IntN(20) == 0 { // a commit without pages
			post := Position{TXID: pre.TXID + 1, Checksum: pre.Checksum}
			row := logRow{min: post.TXID, max: post.TXID}
			if pageSize, pages := m.Size(); pages > 0 && r.IntN(6) > 0 {
				var err error
				if row.data, err = encodeEmpty(pre, post.TXID, pageSize, pages); err != nil {
					t.Fatal(err)
				}
			}
			if log.append(pre, preID, post, lastID, row) {
				stats["empty"]++
				if err := m.Advance(post.TXID); err != nil {
					t.Fatal(err)
				}
				m.id = lastID
			}
			continue
		}

		mirrortest.Event(t, m.Mirror, r, 1+r.IntN(4))
		if r.IntN(4) == 0 { // a second event of the same batch, which fails
			undoLast(t, m.Mirror, r)
			stats["undone alone"]++
		}
		if err := m.Reset(); err != nil {
			t.Fatal(err)
		}
		e, err := m.Capture()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			stats["nothing"]++
			continue
		}
		row := logRow{min: e.Post.TXID, max: e.Post.TXID, data: e.Data}
		if h, err := Inspect(e.Data); err != nil {
			t.Fatal(err)
		} else {
			row.min = h.MinTXID
		}
		content := contentHash(t, m.Mirror)
		known := false // the writer knows that its commit was stored
		switch r.IntN(6) {
		case 0:
			stats["lost"]++
		case 1:
			if log.append(pre, preID, e.Post, lastID, row) {
				stats["stored, answer lost"]++
				hash = content
			}
		default:
			known = log.append(pre, preID, e.Post, lastID, row)
		}
		switch {
		case known:
			stats["committed"]++
			hash = content
			m.id = lastID
			err = m.Confirm(e.Post)
		case r.IntN(3) == 0:
			stats["discarded"]++
			err = m.Discard()
		default:
			stats["undone"]++
			err = m.Undo()
			if err == nil && r.IntN(2) == 0 {
				err = m.Verify()
			}
			if got := m.Position(); got != pre {
				t.Fatalf("undone to %s, want %s", got, pre)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(log.rows); n > 5 && r.IntN(15) == 0 {
			from := 0
			if r.IntN(2) == 0 {
				from = r.IntN(n - 2)
			}
			if log.compact(t, from, from+2+r.IntN(n-from-1)) {
				stats["compacted"]++
			}
		}
	}
	sameFiles(t, &log, replicas[:])
	t.Logf("head %s, %v", log.head, stats)
}

// undoLast runs a failing event after a mark and undoes it alone.
func undoLast(t *testing.T, m *Mirror, r *rand.Rand) {
	t.Helper()
	before := contentHash(t, m)
	mark, err := m.Mark()
	if err != nil {
		t.Fatal(err)
	}
	mirrortest.Event(t, m, r, 1+r.IntN(3))
	if r.IntN(2) == 0 {
		exec(t, m, "BEGIN; INSERT INTO t(a) VALUES(1)")
	}
	if err := m.UndoTo(mark); err != nil {
		t.Fatal(err)
	}
	if contentHash(t, m) != before {
		t.Fatal("content differs after UndoTo")
	}
}

// sameFiles brings all replicas to the head and compares their files.
func sameFiles(t *testing.T, log *memoryLog, replicas []*replica) {
	t.Helper()
	var want []byte
	for _, m := range replicas {
		m.catchUp(t, log)
		if got := value(t, m.Mirror, "PRAGMA integrity_check"); got != "ok" {
			t.Fatalf("integrity_check: %v", got)
		}
		if err := errors.Join(m.Verify(), m.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(m.path)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Fatal("files differ")
		}
	}
}
