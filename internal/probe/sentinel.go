package probe

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

const (
	// Class is the class of sentinel objects, which no application has.
	Class = "dwk_probe"
	// sentinelTTL is longer than the round trips of one sentinel may take.
	sentinelTTL = 30 * time.Second
	// sentinelAge is when a sentinel that is still there was left behind by a
	// probe that was killed.
	sentinelAge = 60 * time.Second
)

// sentinel takes the lease of a new object, commits to its log what a mirror
// captured, has a second mirror catch up with the log, and removes all of it.
func (p *prober) sentinel(g *group) error {
	dir, err := os.MkdirTemp(p.TempDir, "dwk-probe-")
	if err != nil {
		return g.step("acquire", func(context.Context) error { return fmt.Errorf("directory for mirrors: %w", err) }, nil)
	}
	defer os.RemoveAll(dir)
	s := &sentinel{
		store: p.KV, id: durable.NewUniqueID().String(), nonce: uuid.NewString(), commitID: uuid.NewString(),
		first: mirror.New(filepath.Join(dir, "first.sqlite"), mirror.Config{}), second: mirror.New(filepath.Join(dir, "second.sqlite"), mirror.Config{}),
	}
	defer s.first.Close()
	defer s.second.Close()
	defer s.clean(g.ctx)
	for _, step := range []func(*group) error{s.acquire, s.commit, s.sync, s.remove} {
		if err := step(g); err != nil {
			return err
		}
	}
	return nil
}

type sentinel struct {
	store         *kv.Store
	id            string
	nonce         string
	commitID      string
	held          lease.Held
	first, second *mirror.Mirror
	gone          bool
}

func (s *sentinel) acquire(g *group) error {
	a := lease.Attempt{
		Class: Class, ID: s.id, Holder: uuid.NewString(), Replica: "probe", Event: lease.EventOperator,
		TTL: sentinelTTL, DeadlineMs: s.store.Clock().Add(sentinelTTL).UnixMilli(),
	}
	plan := kv.NewPlan()
	show, err := a.Add(plan)
	if err != nil {
		return err
	}
	head, tail := objlog.AddHead(plan, Class, s.id), objlog.AddTail(plan, Class, s.id, 0)
	var v kv.Verdict
	return g.step("acquire", func(ctx context.Context) (err error) {
		v, err = s.store.Commit(ctx, plan)
		s.gone = err != nil && libsql.OutcomeOf(err) != libsql.Unknown
		return err
	}, func() error {
		info, ok, err := lease.Read(Class, s.id, v.Results[show])
		if err != nil {
			return err
		}
		if !v.OK || !ok || info.Holder != a.Holder || info.Stamp != v.Stamp {
			return wrong("the lease of a new object was not taken")
		}
		if n := len(v.Results[head].Rows) + len(v.Results[tail].Rows); n > 0 {
			return wrong("a new object has a log")
		}
		s.held = lease.Held{Class: Class, ID: s.id, Holder: info.Holder, Stamp: info.Stamp}
		return nil
	})
}

func (s *sentinel) commit(g *group) error {
	entry, err := s.write(g.ctx)
	if err != nil {
		return g.step("commit", func(context.Context) error { return fmt.Errorf("mirror: %w", err) }, nil)
	}
	plan := kv.NewPlan()
	s.held.Require(plan)
	objlog.Commit{
		Class: Class, ID: s.id, CommitID: s.commitID, Epoch: s.held.Stamp, Post: entry.Post.Checksum,
		PageSize: entry.PageSize, Pages: entry.Pages, Data: entry.Data, Snapshot: true,
	}.Add(plan)
	var v kv.Verdict
	return g.step("commit", func(ctx context.Context) (err error) {
		v, err = s.store.Commit(ctx, plan)
		return err
	}, func() error {
		if !v.OK {
			return wrong("a commit under a live lease was refused")
		}
		return s.first.Confirm(entry.Post)
	})
}

// write makes the sentinel's database.
func (s *sentinel) write(ctx context.Context) (*mirror.Entry, error) {
	if _, err := s.first.Exec(ctx, `CREATE TABLE probe(nonce TEXT)`); err != nil {
		return nil, err
	}
	if _, err := s.first.Exec(ctx, `INSERT INTO probe VALUES (?)`, s.nonce); err != nil {
		return nil, err
	}
	return s.first.Capture()
}

// sync reads the log as the next event of the object would.
func (s *sentinel) sync(g *group) error {
	plan := kv.NewPlan()
	s.held.Require(plan)
	head, tail := objlog.AddHead(plan, Class, s.id), objlog.AddTail(plan, Class, s.id, 0)
	var v kv.Verdict
	return g.step("sync", func(ctx context.Context) (err error) {
		v, err = s.store.Commit(ctx, plan)
		return err
	}, func() error {
		if !v.OK {
			return wrong("a lease was lost within its time")
		}
		h, err := objlog.ReadHead(v.Results[head])
		if err != nil {
			return err
		}
		entries, err := objlog.ReadEntries(v.Results[tail])
		if err != nil {
			return err
		}
		if h.TXID != 1 || h.CommitID != s.commitID || h.Epoch != s.held.Stamp || len(entries) != 1 || entries[0].CommitID != s.commitID {
			return wrong("the log does not end with the commit that was made")
		}
		return s.compare(entries[0].Data)
	})
}

// compare has the second mirror catch up and compares both files.
func (s *sentinel) compare(entry []byte) error {
	if err := s.second.Apply(entry); err != nil {
		return wrong("the log entry was changed: %v", err)
	}
	var want, got bytes.Buffer
	if err := s.first.Export(&want); err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	if err := s.second.Export(&got); err != nil {
		return fmt.Errorf("mirror: %w", err)
	}
	if !bytes.Equal(want.Bytes(), got.Bytes()) || !bytes.Contains(got.Bytes(), []byte(s.nonce)) {
		return wrong("a database that was rebuilt from its log is another one")
	}
	return nil
}

// remove removes the sentinel, and those that killed probes left.
func (s *sentinel) remove(g *group) error {
	plan, left := s.removal()
	plan.Add(`DELETE FROM obj_log WHERE class = ? AND id IN (SELECT id FROM obj_head WHERE class = ? AND updated_at < `+kv.Now+` - ?)`,
		Class, Class, sentinelAge.Milliseconds())
	stale := plan.Add(`DELETE FROM obj_head WHERE class = ? AND updated_at < `+kv.Now+` - ?`, Class, sentinelAge.Milliseconds())
	var v kv.Verdict
	return g.step("delete", func(ctx context.Context) (err error) {
		v, err = s.store.Commit(ctx, plan)
		return err
	}, func() error {
		if v.Results[left].Rows[0][0] != int64(0) {
			return wrong("what was deleted is still there")
		}
		s.gone = true
		if n := v.Results[stale].Changes; n > 0 {
			g.note("delete", fmt.Sprintf("removed %d that an interrupted probe had left", n), false)
		}
		return nil
	})
}

// removal deletes everything of the sentinel; the result of left counts what
// is still there.
func (s *sentinel) removal() (plan *kv.Plan, left int) {
	plan = kv.NewPlan()
	key := lease.Key(Class, s.id)
	plan.Add(`DELETE FROM obj_log WHERE class = ? AND id = ?`, Class, s.id)
	plan.Add(`DELETE FROM obj_head WHERE class = ? AND id = ?`, Class, s.id)
	plan.Delete(key)
	left = plan.Add(`SELECT (SELECT count(*) FROM obj_log WHERE class = ? AND id = ?) + (SELECT count(*) FROM obj_head WHERE class = ? AND id = ?)
	+ (SELECT count(*) FROM kv WHERE k = ?)`, Class, s.id, Class, s.id, key)
	return plan, left
}

// clean removes the sentinel when its checks did not. A later probe does when
// this fails too.
func (s *sentinel) clean(ctx context.Context) {
	if s.gone {
		return
	}
	ctx, cancel := cleanup(ctx)
	defer cancel()
	plan, _ := s.removal()
	_, _ = s.store.Commit(ctx, plan)
}
