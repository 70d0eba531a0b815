package sqlcopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
)

type tableComparison struct {
	*comparison
	t     *table
	rows  [2]*prefetched
	d     TableDiff
	sum   hash.Hash
	buf   []byte
	found int
	// sums: the sides have the rows in different orders. What is compared is the
	// sum of their hashes.
	sums   bool
	totals [2][4]uint64
}

func (c *tableComparison) run(ctx context.Context) error {
	var row [2][]any
	var need = [2]bool{true, true}
	for c.found < tableDifferences {
		for i := range row {
			if !need[i] {
				continue
			}
			var err error
			if row[i], err = c.rows[i].next(); err != nil {
				return err
			}
			if row[i] != nil {
				if err := c.took(ctx, i, row[i]); err != nil {
					return err
				}
			}
		}
		need = [2]bool{true, true}
		if row[0] == nil && row[1] == nil {
			break
		}
		if c.sums {
			continue
		}
		if row[0] != nil && row[1] != nil {
			same, err := c.same(ctx, row)
			if err != nil {
				return err
			}
			if same {
				continue
			}
		}
		if need = c.order(row); need[0] && need[1] {
			continue // the values of one row differ, and were named
		}
		i := 0 // the side that has the row
		if need[1] {
			i = 1
		}
		d := Difference{What: "row", Name: c.t.name, Key: c.key(row[i]), A: "is missing", B: "is missing"}
		if c.found++; c.t.rowidAt < 0 && row[1-i] != nil {
			// Which of the keys comes first only the database knows, so nothing
			// tells where the sides meet again.
			c.found = tableDifferences
			d.A, d.B = "next is "+c.key(row[0]), "next is "+c.key(row[1])
		} else if i == 0 {
			d.A = "exists"
		} else {
			d.B = "exists"
		}
		c.differ(d)
	}
	if c.sums && c.totals[0] != c.totals[1] {
		c.found++
		c.differ(Difference{What: "row", Name: c.t.name, A: "some rows", B: "other rows"})
	}
	return nil
}

// order says of two rows that are not the same which side goes on: both, when
// they have one key and their values differ.
func (c *tableComparison) order(row [2][]any) (next [2]bool) {
	switch {
	case row[0] == nil:
		return [2]bool{false, true}
	case row[1] == nil:
		return [2]bool{true, false}
	case c.key(row[0]) == c.key(row[1]) && (c.t.rowidAt >= 0 || len(c.t.key) > 0):
		return [2]bool{true, true}
	case c.t.rowidAt < 0:
		if len(c.t.key) == 0 { // rows have no name but their number
			c.differ(Difference{What: "value", Name: c.t.name, Key: c.key(nil), A: short(showRow(row[0])), B: short(showRow(row[1]))})
			c.found++
			return [2]bool{true, true}
		}
		return [2]bool{true, false}
	}
	a, _ := row[0][c.t.rowidAt].(int64)
	b, _ := row[1][c.t.rowidAt].(int64)
	return [2]bool{a < b, b < a}
}

// took counts a row, and hashes it.
func (c *tableComparison) took(ctx context.Context, side int, row []any) error {
	c.d.Rows[side]++
	h := c.sum
	if c.sums {
		h = sha256.New()
	} else if side == 1 {
		return nil
	}
	for _, v := range row {
		if l, ok := v.(*large); ok {
			h.Write(appendValue(c.buf, l))
			c.buf = c.buf[:0]
			for off := int64(0); off < l.size; off += pieceSize {
				b, err := c.sides[side].reader.piece(ctx, l.place, off, min(pieceSize, l.size-off))
				if err != nil {
					return err
				}
				h.Write(b)
			}
		} else {
			c.buf = appendValue(c.buf, v)
		}
		if side == 0 {
			n, _ := sizeOf(v)
			c.diff.Bytes += n
		}
	}
	h.Write(c.buf)
	c.buf = c.buf[:0]
	if side == 0 {
		c.diff.Rows++
		if c.since++; c.since == progressRows && c.opts.Progress != nil {
			c.since = 0
			c.opts.Progress(c.diff.Rows, c.diff.Bytes)
		}
	}
	if c.sums {
		add(&c.totals[side], h.Sum(nil))
	}
	return nil
}

// pieceSize is the size of the pieces of large values that are compared.
const pieceSize = 512 << 10

// add adds a hash to a sum.
func add(total *[4]uint64, sum []byte) {
	carry := uint64(0)
	for i := range total {
		n := uint64(0)
		for _, b := range sum[8*i : 8*i+8] {
			n = n<<8 | uint64(b)
		}
		next := total[i] + n + carry
		if carry == 0 && next < n || carry == 1 && next <= n {
			carry = 1
		} else {
			carry = 0
		}
		total[i] = next
	}
}

// same compares two rows. Where they have one key it names the first value that
// differs.
func (c *tableComparison) same(ctx context.Context, row [2][]any) (bool, error) {
	for i := range row[0] {
		equal, err := c.equal(ctx, row[0][i], row[1][i])
		if err != nil {
			return false, err
		}
		if equal {
			continue
		}
		if c.key(row[0]) != c.key(row[1]) || c.t.rowidAt < 0 && len(c.t.key) == 0 {
			return false, nil
		}
		at := i
		if c.t.rowid != "" {
			at--
		}
		c.differ(Difference{What: "value", Name: c.t.name, Key: c.key(row[0]), Column: c.t.columns[at].name, A: short(show(row[0][i])), B: short(show(row[1][i]))})
		c.found++
		return false, nil
	}
	return true, nil
}

// equal compares two values exactly.
func (c *tableComparison) equal(ctx context.Context, a, b any) (bool, error) {
	la, aok := a.(*large)
	lb, bok := b.(*large)
	if !aok && !bok {
		switch x := a.(type) {
		case []byte:
			y, ok := b.([]byte)
			return ok && bytes.Equal(x, y), nil
		case float64:
			y, ok := b.(float64)
			return ok && math.Float64bits(x) == math.Float64bits(y), nil
		}
		_, blob := b.([]byte)
		return !blob && a == b, nil
	}
	textA, sizeA, ok := extent(a)
	textB, sizeB, ok2 := extent(b)
	if !ok || !ok2 || textA != textB || sizeA != sizeB {
		return false, nil
	}
	for off := int64(0); off < sizeA; off += pieceSize {
		n := min(pieceSize, sizeA-off)
		pa, err := part(ctx, c.sides[0].reader, la, a, off, n)
		if err != nil {
			return false, err
		}
		pb, err := part(ctx, c.sides[1].reader, lb, b, off, n)
		if err != nil {
			return false, err
		}
		if !bytes.Equal(pa, pb) {
			return false, nil
		}
	}
	return true, nil
}

// extent returns type and size of a text or blob.
func extent(v any) (text bool, size int64, ok bool) {
	switch v := v.(type) {
	case *large:
		return v.text, v.size, true
	case string:
		return true, int64(len(v)), true
	case []byte:
		return false, int64(len(v)), true
	}
	return false, 0, false
}

func part(ctx context.Context, r reader, l *large, v any, off, n int64) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return []byte(v[off : off+n]), nil
	case []byte:
		return v[off : off+n], nil
	}
	return r.piece(ctx, l.place, off, n)
}

// key names a row.
func (c *tableComparison) key(row []any) string {
	switch {
	case c.t.rowidAt >= 0:
		return show(row[c.t.rowidAt])
	case len(c.t.key) == 0:
		return "number " + strconv.FormatInt(c.d.Rows[0], 10)
	}
	var parts []string
	for _, k := range c.t.key {
		i := slices.IndexFunc(c.t.columns, func(col column) bool { return strings.EqualFold(col.name, k.name) })
		parts = append(parts, show(row[i]))
	}
	return strings.Join(parts, ", ")
}
