package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

const (
	// pageRows and pageBytes bound the messages of one commit.
	pageRows  = 200
	pageBytes = 512 << 10
)

// A job is a row of the queue backlog that waits.
type job struct {
	id      int64
	queue   any
	body    any
	visible any
}

// pending is the query of the rows that wait, behind an id.
const pending = `SELECT id, queue, body, visible_at FROM queue_jobs WHERE dead = 0 AND id > ? ORDER BY id LIMIT ?`

// readJobs reads at most a page of rows behind after.
func readJobs(c *sqlite.Conn, after int64) (jobs []job, more bool, err error) {
	s, _, err := c.Prepare(pending)
	if err != nil {
		return nil, false, err
	}
	defer s.Close() //nolint:errcheck // reported by Step
	if err := errors.Join(s.Bind(1, after), s.Bind(2, int64(pageRows))); err != nil {
		return nil, false, err
	}
	for size := 0; ; {
		row, err := s.Step()
		if err != nil || !row {
			return jobs, len(jobs) == pageRows, err
		}
		j := job{queue: s.Value(1), body: s.Value(2), visible: s.Value(3)}
		j.id, _ = s.Value(0).(int64)
		text, _ := j.body.(string)
		if size += len(text); size > pageBytes && len(jobs) > 0 {
			return jobs, true, nil
		}
		jobs = append(jobs, j)
	}
}

// message makes a message of a row, or says why it stays in the source.
func (j job) message(source string) (queue.Imported, error) {
	name, ok := j.queue.(string)
	if !ok {
		return queue.Imported{}, errors.New("its queue is no text")
	}
	text, ok := j.body.(string)
	if !ok || !json.Valid([]byte(text)) {
		return queue.Imported{}, errors.New("its body is not JSON; it stays in the source")
	}
	var due int64
	switch v := j.visible.(type) {
	case int64:
		due = v
	case float64:
		due = int64(v)
	default:
		return queue.Imported{}, errors.New("its time is no number")
	}
	return queue.Import(name, messageID(source, j), []byte(text), due)
}

// messageID is derived from where a message comes from, and what it is: a backlog
// that is made anew gives the numbers of its rows again.
func messageID(source string, j job) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(source+"/"+strconv.FormatInt(j.id, 10)+"/"+j.sum())).String()
}

// sum tells one message of a row from another.
func (j job) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %v", j.queue, j.body, j.visible)
	return hex.EncodeToString(h.Sum(nil))
}

// An imported is a message with the row that it comes from.
type imported struct {
	queue.Imported
	row int64
	sum string
}

func markerKey(source string, row int64) []byte {
	return tuple.MustEncode(MarkerPrefix, source, float64(row))
}

// withQueueCopy opens a copy of the queue backlog, to look at it.
func (m *mover) withQueueCopy(ctx context.Context, f found, use func(*sqlite.Conn) error) error {
	dir, err := os.MkdirTemp(m.cfg.TempDir, ".dwk-migrate-*")
	if err != nil {
		return fmt.Errorf("directory for a copy: %w", err)
	}
	path := filepath.Join(dir, queueName)
	err = copyDatabase(ctx, f.path, path)
	if err == nil {
		err = checkWAL(path + "-wal")
	}
	if err == nil {
		var c *sqlite.Conn
		if c, err = sqlite.OpenExisting(path); err == nil {
			stop := c.Watch(ctx)
			err = use(c)
			stop()
			err = errors.Join(err, c.Close())
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// planQueue counts the rows that wait, and calls bad for each that cannot move.
func (m *mover) planQueue(ctx context.Context, f found, bad func(Line)) (n int64, err error) {
	err = m.withQueueCopy(ctx, f, func(c *sqlite.Conn) error {
		if err := integrity(c); err != nil {
			return err
		}
		for after := int64(-1 << 62); ; {
			jobs, more, err := readJobs(c, after)
			if err != nil {
				return err
			}
			for _, j := range jobs {
				after = j.id
				if _, err := j.message(m.queueSource); err != nil {
					bad(m.badMessage(j, err))
					continue
				}
				n++
			}
			if !more {
				return nil
			}
		}
	})
	return n, err
}

func (m *mover) badMessage(j job, err error) Line {
	return Line{Kind: Queues, Item: fmt.Sprintf("queue/%d", j.id), Outcome: Skipped, Reason: fmt.Sprintf("message of queue %v: %v", j.queue, err)}
}

// moveQueue moves the messages that wait.
func (m *mover) moveQueue(ctx context.Context, f found) (Line, error) {
	l := Line{Kind: Queues, Item: f.item, Outcome: Already, Verified: m.cfg.Verify}
	// The copy is judged first: nothing must be marked in a damaged one.
	if _, err := m.planQueue(ctx, f, func(Line) {}); err != nil {
		return l, sourceError{err}
	}
	c, err := sqlite.OpenExisting(f.path)
	if err != nil {
		return l, sourceError{err}
	}
	stop := c.Watch(ctx)
	source, target := Side{Messages: map[string]int64{}}, Side{Messages: map[string]int64{}}
	for after := int64(-1 << 62); err == nil; {
		var jobs []job
		var more bool
		if jobs, more, err = readJobs(c, after); err != nil {
			err = sourceError{err}
			break
		}
		if len(jobs) > 0 {
			after = jobs[len(jobs)-1].id
			err = m.movePage(ctx, c, jobs, source.Messages, target.Messages)
		}
		if !more {
			break
		}
	}
	stop()
	err = errors.Join(err, c.Close())
	var rows int64
	for _, n := range source.Messages {
		rows += n
	}
	if rows > 0 {
		l.Outcome = Moved
	}
	source.Rows, l.Source = &rows, &source
	if m.cfg.Verify != VerifyNone {
		l.Target = &target
	}
	return l, err
}

// movePage moves a page of rows in one commit and then marks them.
func (m *mover) movePage(ctx context.Context, c *sqlite.Conn, jobs []job, source, target map[string]int64) error {
	var page []imported
	for _, j := range jobs {
		msg, err := j.message(m.queueSource)
		if err != nil {
			m.tally.add(m.badMessage(j, err))
			continue
		}
		page = append(page, imported{msg, j.id, j.sum()})
	}
	if len(page) == 0 {
		return nil
	}
	added, err := m.sendPage(ctx, page)
	if err != nil {
		return err
	}
	failpoint.Hit("migrate.queue.sent")
	if m.cfg.Verify != VerifyNone {
		if err := m.verifyPage(ctx, page, added, target); err != nil {
			return fmt.Errorf("verify messages: %w", err)
		}
	}
	if err := markJobs(c, page); err != nil {
		return sourceError{fmt.Errorf("mark what was imported: %w", err)}
	}
	failpoint.Hit("migrate.queue.marked")
	for _, msg := range page {
		source[msg.Queue]++
	}
	m.progress.rows(Queues, int64(len(page)))
	return nil
}

// A marker says which message of a row was imported; sum is empty in those that
// an older release has written, whatever it was.
type marker struct {
	At  int64  `json:"at"`
	Sum string `json:"sum,omitempty"`

	stamp kv.Versionstamp // 0 when there is none
}

func (m marker) of(sum string) bool { return m.stamp > 0 && (m.Sum == "" || m.Sum == sum) }

// sendPage has the messages at the target, each with its marker in the same
// commit, and returns those that were not there before.
func (m *mover) sendPage(ctx context.Context, page []imported) (added []imported, err error) {
	for attempt := range 5 {
		there, err := m.markers(ctx, page)
		if err != nil {
			return nil, err
		}
		p := kv.NewPlan()
		var list []queue.Imported
		at := m.cfg.Store.Clock().UnixMilli()
		for i, msg := range page {
			if there[i].of(msg.sum) {
				continue
			}
			if attempt == 0 {
				added = append(added, msg)
			}
			text, err := json.Marshal(marker{At: at, Sum: msg.sum})
			if err != nil {
				return nil, err
			}
			list = append(list, msg.Imported)
			p.Check(markerKey(m.queueSource, msg.row), there[i].stamp)
			p.Set(markerKey(m.queueSource, msg.row), string(text), 0)
		}
		if len(list) == 0 {
			return added, nil
		}
		queue.AddImport(p, list)
		v, err := m.cfg.Store.Commit(ctx, p)
		switch {
		case err == nil && v.OK:
			return added, nil
		case err == nil: // an earlier attempt has arrived
		case lost(err) && ctx.Err() == nil: // the markers tell
		default:
			return nil, fmt.Errorf("import messages: %w", err)
		}
	}
	return nil, fmt.Errorf("import messages: %w", durable.ErrUnknownOutcome)
}

// markers are those of the rows of a page.
func (m *mover) markers(ctx context.Context, page []imported) ([]marker, error) {
	keys := make([]string, len(page))
	for i, msg := range page {
		keys[i] = hex.EncodeToString(markerKey(m.queueSource, msg.row))
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	res, err := m.cfg.Store.Decide(ctx, libsql.S(`SELECT k.key, v, ver FROM json_each(?) k JOIN kv ON kv.k = unhex(k.value)`, string(list)))
	if err != nil {
		return nil, fmt.Errorf("look for imported messages: %w", err)
	}
	out := make([]marker, len(page))
	for _, row := range res[0].Rows {
		i, _ := row[0].(int64)
		text, _ := row[1].(string)
		if err := json.Unmarshal([]byte(text), &out[i]); err != nil {
			return nil, fmt.Errorf("marker of row %d: %w", page[i].row, err)
		}
		stamp, _ := row[2].(int64)
		out[i].stamp = kv.Versionstamp(stamp)
	}
	return out, nil
}

// verifyPage reads messages back and counts those that are there. What this run
// has added must be; what was imported before may have been worked off since.
func (m *mover) verifyPage(ctx context.Context, page, added []imported, counts map[string]int64) error {
	keys := make([]string, len(page))
	for i, msg := range page {
		keys[i] = hex.EncodeToString(msg.Key())
	}
	list, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	res, err := m.cfg.Store.Decide(ctx, libsql.S(`SELECT k.key, v FROM json_each(?) k JOIN kv ON kv.k = unhex(k.value)`, string(list)))
	if err != nil {
		return err
	}
	there := map[int64]bool{}
	for _, row := range res[0].Rows {
		i, _ := row[0].(int64)
		text, _ := row[1].(string)
		var v struct {
			Body json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil || string(v.Body) != string(page[i].Body) {
			return fmt.Errorf("row %d has another body there", page[i].row)
		}
		there[page[i].row] = true
		counts[page[i].Queue]++
	}
	for _, msg := range added {
		if !there[msg.row] {
			return fmt.Errorf("the message of row %d is not there", msg.row)
		}
	}
	return nil
}

// markJobs marks rows as imported.
func markJobs(c *sqlite.Conn, page []imported) error {
	if err := c.Exec(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	s, _, err := c.Prepare(`UPDATE queue_jobs SET dead = 1 WHERE id = ? AND dead = 0`)
	for _, msg := range page {
		if err == nil {
			err = s.Bind(1, msg.row)
		}
		if err == nil {
			err = s.Run()
		}
		if err == nil {
			err = s.Reset()
		}
	}
	if s != nil {
		err = errors.Join(err, s.Close())
	}
	if err == nil {
		err = c.Exec(`COMMIT`)
	}
	if err != nil && !c.Autocommit() {
		err = errors.Join(err, c.Exec(`ROLLBACK`))
	}
	return err
}
