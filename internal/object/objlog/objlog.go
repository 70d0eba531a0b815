// Package objlog is the log of an object: the LTX files whose sum is its
// database, and the head that names the last of them. A commit is conditional
// on the head's TXID and commit id and on the lease, so that nobody appends to
// a log that he does not know the end of. All its statements join a kv.Plan.
//
// A log has levels. A commit is a row of level 0; rows of the levels 1 to 3
// repeat what 64, 4,096 and 262,144 commits did, and level 9 holds complete
// databases. So a reader needs about 200 rows from a snapshot to the head,
// however long the log is. A row with MinTXID 1 is complete: it can be applied
// to any database. Rows of the levels 1 to 3 never are.
package objlog

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
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
	`CREATE INDEX IF NOT EXISTS obj_garbage_at ON obj_garbage(at)`,
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
	// Epoch is the stamp of the lease of the last commit, or of that commit when
	// it had none.
	Epoch kv.Versionstamp
	Name  string
	// Times are epoch milliseconds by the primary's clock; DeletedAt is 0
	// unless the head is a tombstone.
	CreatedAt, UpdatedAt, DeletedAt int64
}

// Exists reports whether there is an object: not when nothing was ever
// committed, nor behind a tombstone.
func (h Head) Exists() bool { return h.TXID > 0 && h.DeletedAt == 0 }

// AddHead adds the reading of the head to a plan and returns its result.
func AddHead(p *kv.Plan, class, id string) int { return p.Add(headSQL, class, id) }

// HeadStatement reads the head, for [ReadHead].
func HeadStatement(class, id string) libsql.Statement { return libsql.S(headSQL, class, id) }

// HeadColumns are those that [ReadHead] reads, of the table alias h.
const HeadColumns = `h.txid, h.checksum, h.last_commit, h.page_size, h.pages, h.epoch, h.name, h.created_at, h.updated_at, h.deleted_at`

const headSQL = `SELECT ` + HeadColumns + ` FROM obj_head h WHERE class = ? AND id = ?`

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

// FormatSum writes an LTX rolling checksum as it is stored: 16 hex digits.
func FormatSum(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// ErrUnreadable says that a head or a row is not what anybody writes.
var ErrUnreadable = errors.New("unreadable")

func parseSum(v any) (uint64, error) {
	s, _ := v.(string)
	if len(s) != 16 {
		return 0, fmt.Errorf("%w: checksum %q has not 16 digits", ErrUnreadable, s)
	}
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: checksum %q: %w", ErrUnreadable, s, err)
	}
	return n, nil
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}
