package audit

import (
	"fmt"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// A row is one of a log, without its data.
type row struct {
	level     int
	min, max  uint64
	pre, post string
	commit    string
	size      int64
	inline    int64 // bytes that the row holds itself, -1 for none
	ref       string
}

func readRow(r libsql.Row) row {
	out := row{
		level: int(num(r[0])), min: uint64(num(r[1])), max: uint64(num(r[2])), pre: text(r[3]), post: text(r[4]), commit: text(r[5]),
		size: num(r[6]), inline: -1, ref: text(r[8]),
	}
	if r[7] != nil {
		out.inline = num(r[7])
	}
	return out
}

// usable tells that the row has what its size promises. A row of level 0 may
// have lost it to retention.
func (r row) usable() bool { return r.size == 0 || r.inline >= 0 || r.ref != "" }

func (r row) name() string {
	if r.level == objlog.Level0 {
		return fmt.Sprintf("commit %d", r.max)
	}
	return fmt.Sprintf("commits %d to %d of level %d", r.min, r.max, r.level)
}

// A file is one that a row names.
type file struct {
	ref  string
	size int64
	row  string
}

// A logCheck goes through the rows of one log in the order of their last
// commits, and of those of one commit, of their levels.
type logCheck struct {
	object
	storeID string
	head    objlog.Head
	found   []Finding
	rows    int64
	files   []file
	last    row
	// reached is the last commit to which the rows lead.
	reached uint64
	// gap is the first commit that is missing, 0 for none.
	gap  uint64
	done bool // the rest is behind the head
}

// maxFaults bounds what is said about one log.
const maxFaults = 10

// add adds a finding. about tells those of one check apart.
func (c *logCheck) add(check, about, format string, args ...any) {
	if len(c.found) < maxFaults {
		c.found = append(c.found, Finding{Check: check, Class: c.class, ID: c.id, Message: fmt.Sprintf(format, args...), same: about})
	}
}

// row takes the next row. atHead says that it is from the transaction that the
// head is from. It returns false behind the head.
func (c *logCheck) row(r row, atHead bool) bool {
	if r.max > c.head.TXID {
		c.done = true
		if atHead {
			c.add(LogHead, fmt.Sprint(r.max), "the head is commit %d, and the log has %s", c.head.TXID, r.name())
		}
		return false
	}
	c.rows++
	c.shape(r)
	if r.ref != "" {
		c.ref(r)
	}
	switch same := c.last.max == r.max && c.rows > 1; {
	case same && (c.last.post != r.post || c.last.commit != r.commit):
		c.add(LogLevels, fmt.Sprint(r.max), "level %d says that commit %d is %q and ends at %s, level %d that it is %q and ends at %s",
			c.last.level, r.max, c.last.commit, c.last.post, r.level, r.commit, r.post)
	case !same && c.rows > 1 && r.level == objlog.Level0 && r.max == c.last.max+1 && r.pre != c.last.post:
		c.add(LogChain, fmt.Sprint(r.max), "commit %d begins at %s, the one before ends at %s", r.max, r.pre, c.last.post)
	}
	if r.usable() {
		switch {
		case r.min <= c.reached+1:
			c.reached = r.max
			if c.gap > 0 && r.min == 1 {
				c.gap = 0 // a complete database leads on
			}
		case c.gap == 0 && r.size > 0: // one without pages stays for a while when those around it were removed
			c.gap = c.reached + 1
		}
	}
	c.last = r
	return true
}

// shape looks at a row by itself.
func (c *logCheck) shape(r row) {
	wrong := func(format string, args ...any) {
		c.add(LogRow, fmt.Sprint(r.level, r.max), "%s: %s", r.name(), fmt.Sprintf(format, args...))
	}
	span := objlog.Span(min(r.level, objlog.MaxLevel))
	switch {
	case r.min == 0 || r.min > r.max:
		wrong("it begins at %d", r.min)
	case r.level == objlog.Level0 && r.min != r.max && r.min != 1, r.level == objlog.SnapshotLevel && r.min != 1:
		wrong("it begins at %d", r.min)
	case r.level > 0 && r.level <= objlog.MaxLevel && (r.max%span != 0 || r.max-r.min >= span):
		wrong("its level holds %d commits each", span)
	case !isSum(r.pre) || !isSum(r.post):
		wrong("checksums %q and %q", r.pre, r.post)
	case r.size < 0, r.inline >= 0 && r.ref == "" && r.inline != r.size:
		wrong("its size is %d, and it has %d bytes", r.size, r.inline)
	case r.level > 0 && !r.usable():
		wrong("it has lost its data")
	case r.size == 0 && r.pre != r.post && r.min != 1:
		wrong("it has no pages and leads from %s to %s", r.pre, r.post)
	case r.commit == "":
		wrong("it has no commit id")
	}
}

func isSum(s string) bool {
	if len(s) != 16 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// ref looks at the name of a row's file.
func (c *logCheck) ref(r row) {
	info, ok := objlog.ParseRef(r.ref)
	if !ok || info.StoreID != c.storeID || info.Class != c.class || info.ID != c.id || info.MaxTXID != r.max {
		c.add(FileName, fmt.Sprint(r.level, r.max), "%s names the file %s, which is not of its place", r.name(), r.ref)
	}
	c.files = append(c.files, file{r.ref, r.size, r.name()})
}

// end looks at where the rows have led.
func (c *logCheck) end() {
	switch {
	case c.reached != c.head.TXID:
		c.add(LogGap, "", "the log leads to commit %d, the head is %d", c.reached, c.head.TXID)
	case c.gap > 0:
		c.add(LogGap, fmt.Sprint(c.gap), "commit %d is missing", c.gap)
	case c.last.commit != c.head.CommitID || c.last.post != objlog.FormatSum(c.head.Checksum):
		c.add(LogHead, "", "the head is %q with checksum %s, its row is %q and ends at %s", c.head.CommitID, objlog.FormatSum(c.head.Checksum), c.last.commit, c.last.post)
	}
	if (c.head.Checksum == 0) != (c.head.Pages == 0) {
		c.add(LogHead, "pages", "the head has the checksum %s and %d pages", objlog.FormatSum(c.head.Checksum), c.head.Pages)
	}
}
