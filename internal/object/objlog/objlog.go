// Package objlog is the log of an object: the LTX files whose sum is its
// database, and the head that names the last of them. A commit is conditional
// on the head's TXID and commit id and on the lease, so that nobody appends to
// a log that he does not know the end of. All its statements join a kv.Plan.
package objlog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of what an acquire returns of the log; more takes further trips.
const (
	MaxRows  = 64
	MaxBytes = 4 << 20
)

// Schema are the statements that create the log's tables. They are idempotent.
var Schema = []string{
	`CREATE TABLE IF NOT EXISTS obj_head(class TEXT, id TEXT, txid INTEGER NOT NULL, checksum TEXT NOT NULL, last_commit TEXT NOT NULL,
	page_size INTEGER NOT NULL, pages INTEGER NOT NULL, epoch INTEGER NOT NULL, name TEXT,
	created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, deleted_at INTEGER,
	PRIMARY KEY (class, id)) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS obj_log(class TEXT, id TEXT, level INTEGER NOT NULL, min_txid INTEGER NOT NULL, max_txid INTEGER NOT NULL,
	pre TEXT NOT NULL, post TEXT NOT NULL, commit_id TEXT, at INTEGER NOT NULL, size INTEGER NOT NULL,
	data BLOB, ref TEXT, PRIMARY KEY (class, id, level, max_txid)) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS obj_garbage(ref TEXT PRIMARY KEY, at INTEGER NOT NULL)`,
}

// A Head is the last committed position of an object. The zero Head is that of
// an object that does not exist.
type Head struct {
	TXID     uint64
	Checksum uint64
	// CommitID is the random id of the last commit: a checksum does not
	// identify one.
	CommitID string
	PageSize uint32
	Pages    uint32
	// Epoch is the stamp of the lease of the last commit.
	Epoch kv.Versionstamp
	Name  string
	// Times are epoch milliseconds by the primary's clock; DeletedAt is 0
	// unless the head is a tombstone.
	CreatedAt, UpdatedAt, DeletedAt int64
}

// Exists reports whether there is an object: not when nothing was ever
// committed, nor behind a tombstone.
func (h Head) Exists() bool { return h.TXID > 0 && h.DeletedAt == 0 }

// An Entry is one row of the log: the positions [MinTXID, MaxTXID].
type Entry struct {
	Level            int
	MinTXID, MaxTXID uint64
	Pre, Post        uint64
	CommitID         string
	At               int64
	Size             int64
	// Data is an LTX file, or nil when the commit changed no page.
	Data []byte
}

// AddHead adds the reading of the head to a plan and returns its result.
func AddHead(p *kv.Plan, class, id string) int { return p.Add(headSQL, class, id) }

const headSQL = `SELECT txid, checksum, last_commit, page_size, pages, epoch, name, created_at, updated_at, deleted_at FROM obj_head WHERE class = ? AND id = ?`

// ReadHead returns the head that the result shows, zero when it shows none.
func ReadHead(r libsql.Result) (Head, error) {
	if len(r.Rows) == 0 {
		return Head{}, nil
	}
	row := r.Rows[0]
	sum, err := parseSum(row[1])
	if err != nil {
		return Head{}, fmt.Errorf("object head: %w", err)
	}
	h := Head{Checksum: sum}
	h.TXID = uint64(num(row[0]))
	h.CommitID, _ = row[2].(string)
	h.PageSize, h.Pages = uint32(num(row[3])), uint32(num(row[4]))
	h.Epoch = kv.Versionstamp(num(row[5]))
	h.Name, _ = row[6].(string)
	h.CreatedAt, h.UpdatedAt, h.DeletedAt = num(row[7]), num(row[8]), num(row[9])
	return h, nil
}

// tailSQL reads what follows a position, in order, at most MaxRows rows and
// MaxBytes bytes, the first row always.
const tailSQL = `SELECT l.level, l.min_txid, l.max_txid, l.pre, l.post, l.commit_id, l.at, l.size, l.data FROM (
	SELECT max_txid AS m, sum(size) OVER (ORDER BY max_txid) AS s, row_number() OVER (ORDER BY max_txid) AS r
	FROM (SELECT max_txid, size FROM obj_log WHERE class = ? AND id = ? AND level = 0 AND max_txid > ? ORDER BY max_txid LIMIT ?)) w
	JOIN obj_log l ON l.class = ? AND l.id = ? AND l.level = 0 AND l.max_txid = w.m
	WHERE (w.r = 1 OR w.s <= ?)`

// AddTail adds the reading of the entries behind a position to a plan, of which
// a refused plan returns none.
func AddTail(p *kv.Plan, class, id string, have uint64) int {
	return p.AddShared(tailSQL+` AND `+kv.OK+` ORDER BY l.max_txid`, class, id, int64(have), MaxRows, class, id, MaxBytes)
}

// Tail reads the entries behind a position at the primary: some, when there
// are many.
func Tail(ctx context.Context, s *kv.Store, class, id string, have uint64) ([]Entry, error) {
	res, err := s.Decide(ctx, libsql.S(tailSQL+` ORDER BY l.max_txid`, class, id, int64(have), MaxRows, class, id, MaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read log of %s/%s: %w", class, id, err)
	}
	return ReadEntries(res[0])
}

// ReadEntries returns the entries that the result shows.
func ReadEntries(r libsql.Result) ([]Entry, error) {
	out := make([]Entry, 0, len(r.Rows))
	for _, row := range r.Rows {
		e := Entry{Level: int(num(row[0])), MinTXID: uint64(num(row[1])), MaxTXID: uint64(num(row[2])), At: num(row[6]), Size: num(row[7])}
		var err error
		if e.Pre, err = parseSum(row[3]); err != nil {
			return nil, fmt.Errorf("log entry %d: %w", e.MaxTXID, err)
		}
		if e.Post, err = parseSum(row[4]); err != nil {
			return nil, fmt.Errorf("log entry %d: %w", e.MaxTXID, err)
		}
		e.CommitID, _ = row[5].(string)
		e.Data, _ = row[8].([]byte)
		out = append(out, e)
	}
	return out, nil
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

// A Commit appends one position to an object's log.
type Commit struct {
	Class, ID, Name string
	// Base is the head that the commit was made on.
	Base Head
	// CommitID is random and new.
	CommitID string
	Epoch    kv.Versionstamp
	// Post, PageSize, Pages and Data describe the changed pages; a commit
	// without any has no Data and keeps the others of Base.
	Post            uint64
	PageSize, Pages uint32
	Data            []byte
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
	var name any
	if c.Name != "" {
		name = c.Name
	}
	minTXID := c.TXID()
	if c.Snapshot {
		minTXID = 1
	}
	p.Add(`INSERT INTO obj_head(class, id, txid, checksum, last_commit, page_size, pages, epoch, name, created_at, updated_at, deleted_at)
	SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, `+kv.Now+`, `+kv.Now+`, NULL FROM kv_meta WHERE id = 0 AND ok = 1
	ON CONFLICT(class, id) DO UPDATE SET txid = excluded.txid, checksum = excluded.checksum, last_commit = excluded.last_commit,
	page_size = excluded.page_size, pages = excluded.pages, epoch = excluded.epoch, name = coalesce(excluded.name, name),
	updated_at = excluded.updated_at, created_at = CASE WHEN deleted_at IS NULL THEN created_at ELSE excluded.created_at END, deleted_at = NULL`,
		c.Class, c.ID, int64(c.TXID()), FormatSum(c.Post), c.CommitID, int64(c.PageSize), int64(c.Pages), int64(c.Epoch), name)
	var data any
	if c.Data != nil {
		data = c.Data
	}
	p.Add(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size, data)
	SELECT ?, ?, 0, ?, ?, ?, ?, ?, `+kv.Now+`, ?, ? FROM kv_meta WHERE id = 0 AND ok = 1`,
		c.Class, c.ID, int64(minTXID), int64(c.TXID()), FormatSum(c.Base.Checksum), FormatSum(c.Post), c.CommitID, int64(len(c.Data)), data)
}

// Head is the head after the commit.
func (c Commit) Head() Head {
	h := Head{TXID: c.TXID(), Checksum: c.Post, CommitID: c.CommitID, PageSize: c.PageSize, Pages: c.Pages, Epoch: c.Epoch, Name: c.Name}
	if h.Name == "" {
		h.Name = c.Base.Name
	}
	return h
}

// FormatSum writes an LTX rolling checksum as it is stored: 16 hex digits.
func FormatSum(sum uint64) string { return fmt.Sprintf("%016x", sum) }

func parseSum(v any) (uint64, error) {
	s, _ := v.(string)
	if len(s) != 16 {
		return 0, fmt.Errorf("checksum %q has not 16 digits", s)
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("checksum %q: %w", s, err)
	}
	return n, nil
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}
