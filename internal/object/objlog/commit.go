package objlog

import (
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Commit appends one position to an object's log.
type Commit struct {
	Class, ID, Name string
	// Base is the head that the commit was made on.
	Base Head
	// CommitID is random and new.
	CommitID string
	Epoch    kv.Versionstamp
	// Stamped says that the epoch is the stamp of the commit itself, which was
	// made without a lease; the plan must be one that takes a stamp.
	Stamped bool
	// Post, PageSize, Pages and Data describe the changed pages; a commit
	// without any has no Data and keeps the others of Base.
	Post            uint64
	PageSize, Pages uint32
	Data            []byte
	// Ref names the LTX file in the object store, and Size is the file's in
	// bytes, when there is no Data. The file must be there already, under a
	// name of [Ref] with the stamp Epoch.
	Ref  string
	Size int64
	// Snapshot says that Data is a complete database, [1..TXID], as the first
	// entry with pages always is.
	Snapshot bool
}

// TXID is the position that the commit takes.
func (c Commit) TXID() uint64 { return c.Base.TXID + 1 }

// Add adds the commit to a plan: its condition on the head and its statements.
// The plan's lease condition is the caller's.
func (c Commit) Add(p *kv.Plan) {
	if c.Base.TXID == 0 {
		p.Require(`NOT EXISTS (SELECT 1 FROM obj_head WHERE class = ? AND id = ?)`, c.Class, c.ID)
	} else {
		p.Require(`EXISTS (SELECT 1 FROM obj_head WHERE class = ? AND id = ? AND txid = ? AND last_commit = ?)`,
			c.Class, c.ID, int64(c.Base.TXID), c.Base.CommitID)
	}
	if c.Data == nil && c.Ref == "" && c.Post != c.Base.Checksum {
		// A position whose pages are nowhere would be the object's end.
		p.Require(`0`)
	}
	var name any
	if c.Name != "" {
		name = c.Name
	}
	var epoch any = int64(c.Epoch)
	if c.Stamped {
		epoch = nil
		p.Stamped()
	}
	minTXID := c.TXID()
	if c.Snapshot {
		minTXID = 1
	}
	p.Add(`INSERT INTO obj_head(class, id, txid, checksum, last_commit, page_size, pages, epoch, name, created_at, updated_at, deleted_at)
	SELECT ?, ?, ?, ?, ?, ?, ?, coalesce(?, seq), ?, `+kv.Now+`, `+kv.Now+`, NULL FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(class, id) DO UPDATE SET txid = excluded.txid, checksum = excluded.checksum, last_commit = excluded.last_commit,
	page_size = excluded.page_size, pages = excluded.pages, epoch = excluded.epoch, name = coalesce(excluded.name, name),
	updated_at = excluded.updated_at, created_at = CASE WHEN deleted_at IS NULL THEN created_at ELSE excluded.created_at END, deleted_at = NULL`,
		c.Class, c.ID, int64(c.TXID()), FormatSum(c.Post), c.CommitID, int64(c.PageSize), int64(c.Pages), epoch, name)
	data, ref, size := stored(c.Data, c.Ref, c.Size)
	p.Add(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size, data, ref)
	SELECT ?, ?, 0, ?, ?, ?, ?, ?, `+kv.Now+`, ?, ?, ? FROM kv_meta WHERE id = 0 AND ok = 1`,
		c.Class, c.ID, int64(minTXID), int64(c.TXID()), FormatSum(c.Base.Checksum), FormatSum(c.Post), c.CommitID, size, data, ref)
}

// stored returns the columns data, ref and size of a row.
func stored(inline []byte, name string, n int64) (data, ref any, size int64) {
	switch {
	case name != "":
		return nil, name, n
	case inline != nil:
		return inline, nil, int64(len(inline))
	}
	return nil, nil, 0
}

// Head is the head after the commit.
func (c Commit) Head() Head {
	h := Head{TXID: c.TXID(), Checksum: c.Post, CommitID: c.CommitID, PageSize: c.PageSize, Pages: c.Pages, Epoch: c.Epoch, Name: c.Name}
	if h.Name == "" {
		h.Name = c.Base.Name
	}
	return h
}

// AddCommitID adds the reading of the commit id at one position to a plan,
// which tells what became of a commit whose answer was lost.
func AddCommitID(p *kv.Plan, class, id string, txid uint64) int {
	return p.Add(`SELECT commit_id FROM obj_log WHERE class = ? AND id = ? AND level = 0 AND max_txid = ?`, class, id, int64(txid))
}

// ReadCommitID returns the commit id that the result shows; ok is false
// without a row.
func ReadCommitID(r libsql.Result) (id string, ok bool) {
	if len(r.Rows) == 0 {
		return "", false
	}
	id, _ = r.Rows[0][0].(string)
	return id, true
}

// A Merged is a row of a higher level, made of rows that follow each other.
type Merged struct {
	Class, ID string
	Level     int
	MinTXID   uint64
	Pre       uint64
	// Last is the last part.
	Last Entry
	// Data is the LTX file, or Ref names it; without either no page was changed.
	Data []byte
	Ref  string
	Size int64
}

// Add adds the row to a plan, unless there is one at its place. The plan's
// conditions are the caller's.
func (m Merged) Add(p *kv.Plan) {
	minTXID, pre := m.MinTXID, m.Pre
	if m.Level == SnapshotLevel {
		minTXID, pre = 1, 0
	}
	var data, ref any
	switch {
	case m.Ref != "":
		ref = m.Ref
	case m.Size > 0:
		data = m.Data
	}
	p.Add(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size, data, ref)
	SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM kv_meta WHERE id = 0 AND ok = 1 ON CONFLICT DO NOTHING`,
		m.Class, m.ID, m.Level, int64(minTXID), int64(m.Last.MaxTXID), FormatSum(pre), FormatSum(m.Last.Post), m.Last.CommitID, m.Last.At, m.Size, data, ref)
}

// AddPromotion adds to a plan that a complete entry is a snapshot too, under
// the plan's conditions.
func AddPromotion(p *kv.Plan, class, id string, e Entry) {
	p.Add(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size, data, ref)
	SELECT class, id, ?, 1, max_txid, pre, post, commit_id, at, size, data, ref FROM obj_log
	WHERE class = ? AND id = ? AND level = ? AND max_txid = ? AND commit_id = ? AND `+usable+` AND `+kv.OK+` ON CONFLICT DO NOTHING`,
		SnapshotLevel, class, id, e.Level, int64(e.MaxTXID), e.CommitID)
}
