package objlog

import "github.com/davidwkeith/dwk/internal/kv"

// A Delete ends an object: one position more, without a database. The head
// stays as a tombstone, so that TXIDs go on and stale mirrors notice.
type Delete struct {
	Class, ID string
	// Base is the head that the deletion was decided on.
	Base Head
	// CommitID is random and new.
	CommitID string
	Epoch    kv.Versionstamp
}

// TXID is the position that the deletion takes.
func (d Delete) TXID() uint64 { return d.Base.TXID + 1 }

// Add adds the deletion to a plan: its condition on the head and its
// statements. The plan's lease condition, and the object's alarm, are the
// caller's. Files of the log become garbage.
func (d Delete) Add(p *kv.Plan) {
	p.Require(`EXISTS (SELECT 1 FROM obj_head WHERE class = ? AND id = ? AND txid = ? AND last_commit = ?)`,
		d.Class, d.ID, int64(d.Base.TXID), d.Base.CommitID)
	AddGarbage(p, `class = ? AND id = ?`, d.Class, d.ID)
	p.Add(`DELETE FROM obj_log WHERE class = ? AND id = ? AND `+kv.OK, d.Class, d.ID)
	p.Add(`UPDATE obj_head SET txid = ?, checksum = ?, last_commit = ?, pages = 0, epoch = ?, updated_at = `+kv.Now+`, deleted_at = `+kv.Now+`
	WHERE class = ? AND id = ? AND `+kv.OK, int64(d.TXID()), FormatSum(0), d.CommitID, int64(d.Epoch), d.Class, d.ID)
	p.Add(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size)
	SELECT ?, ?, 0, 1, ?, ?, ?, ?, `+kv.Now+`, 0 FROM kv_meta WHERE id = 0 AND ok = 1`,
		d.Class, d.ID, int64(d.TXID()), FormatSum(0), FormatSum(0), d.CommitID)
}

// AddGarbage adds to a plan that the files of the rows of obj_log that a
// condition selects become garbage, from now on. Another row may still name
// them: that is seen when they are collected.
func AddGarbage(p *kv.Plan, cond string, args ...any) {
	p.Add(`INSERT INTO obj_garbage(ref, at) SELECT ref, `+kv.Now+` FROM obj_log WHERE `+cond+` AND ref IS NOT NULL AND `+kv.OK+`
	ON CONFLICT(ref) DO UPDATE SET at = excluded.at`, args...)
}
