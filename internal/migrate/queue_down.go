package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/davidwkeith/dwk/internal/failpoint"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// queueTableSQL makes the backlog as a local host does.
const queueTableSQL = `CREATE TABLE queue_jobs(id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, body TEXT NOT NULL,
	attempts INTEGER NOT NULL DEFAULT 0, visible_at INTEGER NOT NULL, dead INTEGER NOT NULL DEFAULT 0)`

// commitRows is how many messages are written in one transaction.
const commitRows = 1000

// moveQueues writes the backlog anew: all messages that wait, and those that
// died, marked as dead.
func (d *Down) moveQueues(ctx context.Context) (l Line, err error) {
	l = Line{Kind: Queues, Item: string(Queues), Outcome: Moved, Verified: d.cfg.Verify}
	temp := d.temp(queueName)
	if err := removeDatabase(temp); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, removeDatabase(temp)) }()
	source, target := Side{Messages: map[string]int64{}}, Side{Messages: map[string]int64{}}
	l.Source, l.Target = &source, &target
	n, sum, err := d.writeQueues(ctx, temp, source.Messages)
	if err != nil {
		return l, err
	}
	source.Rows, source.SHA256 = &n, sum
	if n == 0 {
		l.Outcome = Already
		return l, nil
	}
	if d.cfg.Verify != VerifyNone {
		back, text, err := readQueues(ctx, temp, target.Messages)
		if err != nil {
			return l, fmt.Errorf("verify messages: %w", err)
		}
		target.Rows, target.SHA256 = &back, text
		if back != n || text != sum {
			return l, errors.New("verify messages: the file holds something else")
		}
	}
	failpoint.Hit("migrate.queue.sent")
	err = d.dirs.place(temp, d.cfg.QueueFile)
	failpoint.Hit("migrate.queue.marked")
	return l, err
}

// row writes what is compared of a message.
func (s *sum) row(queue, body string, attempts, at, dead int64) {
	fmt.Fprintf(s, "%d:%s%d:%s%d,%d,%d\n", len(queue), queue, len(body), body, attempts, at, dead)
}

func (d *Down) writeQueues(ctx context.Context, path string, counts map[string]int64) (n int64, text string, err error) {
	c, err := sqlite.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := errors.Join(c.Exec(queueTableSQL), c.Exec(`BEGIN`)); err != nil {
		return 0, "", err
	}
	s, _, err := c.Prepare(`INSERT INTO queue_jobs(queue, body, attempts, visible_at, dead) VALUES (?, ?, ?, ?, ?)`)
	if err != nil {
		return 0, "", err
	}
	defer s.Close() //nolint:errcheck // reported by Run
	h := newSum()
	for m, err := range d.messages(ctx) {
		if err != nil {
			return n, "", err
		}
		var dead int64
		if m.Dead {
			dead = 1
		} else {
			counts[m.Queue]++
		}
		err := errors.Join(s.Bind(1, m.Queue), s.Bind(2, string(m.Body)), s.Bind(3, int64(m.Attempts)), s.Bind(4, m.AtMs), s.Bind(5, dead))
		if err == nil {
			err = s.Run()
		}
		if err == nil {
			err = s.Reset()
		}
		if n++; err == nil && n%commitRows == 0 {
			err = errors.Join(c.Exec(`COMMIT`), c.Exec(`BEGIN`))
		}
		if err != nil {
			return n, "", err
		}
		h.row(m.Queue, string(m.Body), int64(m.Attempts), m.AtMs, dead)
	}
	d.progress.rows(Queues, n)
	return n, h.text(), c.Exec(`COMMIT`)
}

// readQueues reads a backlog in the order of its rows.
func readQueues(ctx context.Context, path string, counts map[string]int64) (n int64, text string, err error) {
	c, err := sqlite.OpenExisting(path)
	if err != nil {
		return 0, "", err
	}
	stop := c.Watch(ctx)
	defer func() {
		stop()
		err = errors.Join(err, c.Close())
	}()
	s, _, err := c.Prepare(`SELECT queue, body, attempts, visible_at, dead FROM queue_jobs ORDER BY id`)
	if err != nil {
		return 0, "", err
	}
	defer s.Close() //nolint:errcheck // reported by Step
	h := newSum()
	for {
		row, err := s.Step()
		if err != nil || !row {
			return n, h.text(), err
		}
		queue, _ := s.Value(0).(string)
		body, _ := s.Value(1).(string)
		attempts, _ := s.Value(2).(int64)
		at, _ := s.Value(3).(int64)
		dead, _ := s.Value(4).(int64)
		if dead == 0 {
			counts[queue]++
		}
		n++
		h.row(queue, body, attempts, at, dead)
	}
}
