package objectops

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// Checked says what a check has looked at.
type Checked struct {
	Rows, Files int
	Bytes       int64
}

const (
	checkRows  = 256
	checkBytes = 4 << 20
)

// checkSQL reads all rows of a log in the order of their levels, as many as one
// round trip may return, at least one.
const checkSQL = `SELECT l.level, l.min_txid, l.max_txid, l.pre, l.post, l.commit_id, l.at, l.size, l.data, l.ref FROM (
	SELECT level, max_txid, sum(n) OVER w AS s, row_number() OVER w AS r FROM (
		SELECT level, max_txid, CASE WHEN ref IS NULL THEN size ELSE 0 END AS n FROM obj_log
		WHERE class = ?1 AND id = ?2 AND (level, max_txid) > (?3, ?4) ORDER BY level, max_txid LIMIT ?5)
	WINDOW w AS (ORDER BY level, max_txid)) t
	CROSS JOIN obj_log l ON l.class = ?1 AND l.id = ?2 AND l.level = t.level AND l.max_txid = t.max_txid
	WHERE t.r = 1 OR t.s <= ?6 ORDER BY l.level, l.max_txid`

// twiceSQL finds a commit that two levels tell different things about.
const twiceSQL = `SELECT a.max_txid FROM obj_log a JOIN obj_log b
	ON b.class = a.class AND b.id = a.id AND b.level IN (1, 2, 3, 9) AND b.max_txid = a.max_txid
	WHERE a.class = ?1 AND a.id = ?2 AND (a.post <> b.post OR a.commit_id <> b.commit_id) LIMIT 1`

// CheckLog verifies every entry of an object's log, those in the object store
// too: the checksums of the files, that each is what its row says, that entries
// that follow each other fit, that the levels agree, and that the log leads to
// the head. Errors about what was found wrap [ErrDamaged].
func (o *Ops) CheckLog(ctx context.Context, class, id string) (Checked, error) {
	var c Checked
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: log of %s/%s: %w", ErrDamaged, class, id, fmt.Errorf(format, args...))
	}
	before := objlog.Entry{Level: -1}
	for {
		res, err := o.Store.Decide(ctx, libsql.S(checkSQL, class, id, before.Level, int64(before.MaxTXID), checkRows, checkBytes))
		if err != nil {
			return c, fmt.Errorf("read log of %s/%s: %w", class, id, err)
		}
		entries, err := objlog.ReadEntries(res[0])
		if err != nil {
			return c, wrong("%w", err)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if e.Level == before.Level && e.MinTXID == before.MaxTXID+1 && e.Pre != before.Post {
				return c, wrong("entry %d to %d of level %d begins at %016x, the one before it ends at %016x", e.MinTXID, e.MaxTXID, e.Level, e.Pre, before.Post)
			}
			if err := o.checkEntry(ctx, e, &c); err != nil {
				return c, wrong("entry %d to %d of level %d: %w", e.MinTXID, e.MaxTXID, e.Level, err)
			}
			before = e
		}
	}
	res, err := o.Store.Decide(ctx, libsql.S(twiceSQL, class, id), objlog.HeadStatement(class, id))
	if err != nil {
		return c, fmt.Errorf("read log of %s/%s: %w", class, id, err)
	}
	if rows := res[0].Rows; len(rows) > 0 {
		return c, wrong("its levels differ at commit %d", num(rows[0][0]))
	}
	head, err := objlog.ReadHead(res[1])
	if err != nil {
		return c, wrong("%w", err)
	}
	var last objlog.Position
	for p, err := range objlog.Positions(ctx, o.Store, class, id) {
		if err != nil {
			return c, err
		}
		if last = p; p.TXID == head.TXID {
			break // commits may have followed
		}
	}
	if last.TXID != head.TXID || last.CommitID != head.CommitID {
		return c, wrong("it leads to commit %d, the head is %d", last.TXID, head.TXID)
	}
	return c, nil
}

// checkEntry verifies one entry by itself.
func (o *Ops) checkEntry(ctx context.Context, e objlog.Entry, c *Checked) error {
	c.Rows++
	var h mirror.Header
	var err error
	switch {
	case !e.Paged():
		if e.Pre != e.Post && !(e.Complete() && e.Post == 0) {
			return fmt.Errorf("it has no pages and leads from %016x to %016x", e.Pre, e.Post)
		}
		return nil
	case e.Ref != "":
		c.Files++
		h, err = o.inspectFile(ctx, e.Ref, e.Size)
	case e.Data == nil:
		return nil // a young row whose data retention has removed
	case int64(len(e.Data)) != e.Size:
		return fmt.Errorf("it has %d bytes, its row says %d", len(e.Data), e.Size)
	default:
		h, err = mirror.InspectFrom(bytes.NewReader(e.Data))
	}
	if err != nil {
		return err
	}
	c.Bytes += e.Size
	if h.MinTXID != e.MinTXID || h.MaxTXID != e.MaxTXID || h.Post != e.Post || !e.Complete() && h.Pre != e.Pre {
		return fmt.Errorf("its file is of the commits %d to %d and leads from %016x to %016x", h.MinTXID, h.MaxTXID, h.Pre, h.Post)
	}
	return nil
}

// inspectFile verifies a file of the object store.
func (o *Ops) inspectFile(ctx context.Context, ref string, size int64) (mirror.Header, error) {
	body, err := o.Blobs.Get(ctx, ref)
	if err != nil {
		return mirror.Header{}, fmt.Errorf("fetch %s: %w", ref, err)
	}
	defer body.Close() //nolint:errcheck // only read from
	counted := &counter{r: body}
	h, err := mirror.InspectFrom(bufio.NewReaderSize(counted, 64<<10))
	if err == nil && counted.n != size {
		err = fmt.Errorf("it has %d bytes, want %d", counted.n, size)
	}
	if err != nil {
		return h, fmt.Errorf("%s: %w", ref, err)
	}
	return h, nil
}

// A counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
