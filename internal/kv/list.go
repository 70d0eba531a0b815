package kv

import (
	"context"
	"fmt"
	"iter"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// ListOptions choose the entries of a List. Start and End narrow the prefix's
// range; Start is included, End is not.
type ListOptions struct {
	Prefix     tuple.Key
	Start, End tuple.Key
	// Limit bounds the entries; 0 means all.
	Limit   int
	Reverse bool
	// Page is the number of entries of a round trip; 0 means 500.
	Page int
}

// maxPageBytes bounds the values of one page, below a server's cap on answers.
const maxPageBytes = 4 << 20

// List yields the live entries in key order, one round trip a page. Pages are
// snapshots of their own. The first error ends the sequence.
func (s *Store) List(ctx context.Context, o ListOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		lo, hi, err := o.bounds()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		page := o.Page
		if page <= 0 {
			page = 500
		}
		for left := o.Limit; ; {
			n := page
			if o.Limit > 0 {
				n = min(n, left)
			}
			rows, more, err := s.page(ctx, lo, hi, n, o.Reverse)
			if err != nil {
				yield(Entry{}, fmt.Errorf("list %s: %w", o.Prefix, err))
				return
			}
			for _, row := range rows {
				e, err := entry(row)
				if !yield(e, err) || err != nil {
					return
				}
			}
			left -= len(rows)
			if !more || o.Limit > 0 && left <= 0 {
				return
			}
			last := rows[len(rows)-1][0].([]byte)
			if o.Reverse {
				hi = last
			} else {
				lo = append(append([]byte{}, last...), 0) // the least key above last
			}
		}
	}
}

func (o ListOptions) bounds() (lo, hi []byte, err error) {
	p, err := o.Prefix.Encode()
	if err != nil {
		return nil, nil, err
	}
	lo, hi = p, tuple.RangeEnd(p)
	if o.Start != nil {
		k, err := o.Start.Encode()
		if err != nil {
			return nil, nil, err
		}
		if string(k) > string(lo) {
			lo = k
		}
	}
	if o.End != nil {
		k, err := o.End.Encode()
		if err != nil {
			return nil, nil, err
		}
		if string(k) < string(hi) {
			hi = k
		}
	}
	return lo, hi, nil
}

// page returns at most n rows under a running sum of maxPageBytes, the first
// row always, and whether there may be more.
func (s *Store) page(ctx context.Context, lo, hi []byte, n int, reverse bool) ([]libsql.Row, bool, error) {
	order := "ASC"
	if reverse {
		order = "DESC"
	}
	res, err := s.Decide(ctx, libsql.S(`SELECT k, v, ver, expires_at, c FROM (
	SELECT k, v, ver, expires_at, sum(length(CAST(v AS BLOB))) OVER w AS s, row_number() OVER w AS r, count(*) OVER () AS c
	FROM (SELECT k, v, ver, expires_at FROM kv WHERE k >= ? AND k < ? AND `+Live+` ORDER BY k `+order+` LIMIT ?)
	WINDOW w AS (ORDER BY k `+order+` ROWS UNBOUNDED PRECEDING)) WHERE r = 1 OR s <= ? ORDER BY k `+order,
		lo, hi, n, maxPageBytes))
	if err != nil {
		return nil, false, err
	}
	rows := res[0].Rows
	if len(rows) == 0 {
		return nil, false, nil
	}
	count, _ := rows[0][4].(int64)
	return rows, count == int64(n) || int(count) > len(rows), nil
}

// Dump yields the live entries under prefix from one snapshot, in constant
// memory.
func (s *Store) Dump(ctx context.Context, prefix tuple.Key) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		p, err := prefix.Encode()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for row, err := range s.db.Stream(ctx, libsql.S(`SELECT k, v, ver, expires_at FROM kv WHERE k >= ? AND k < ? AND `+Live+` ORDER BY k`, p, tuple.RangeEnd(p))) {
			if err != nil {
				yield(Entry{}, fmt.Errorf("dump %s: %w", prefix, err))
				return
			}
			e, err := entry(row)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// A PrefixStat sums up the rows whose key begins with one string.
type PrefixStat struct {
	Prefix               string
	Rows, Bytes, Expired int64
}

// Stats yields figures by the first element of the keys, expired rows
// included. It reads the whole store as a stream.
func (s *Store) Stats(ctx context.Context) ([]PrefixStat, error) {
	var out []PrefixStat
	for row, err := range s.db.Stream(ctx, libsql.S(`SELECT k, length(k) + length(CAST(v AS BLOB)), NOT `+Live+` FROM kv ORDER BY k`)) {
		if err != nil {
			return nil, fmt.Errorf("stats: %w", err)
		}
		k, _ := row[0].([]byte)
		name := "(other)"
		if key, err := tuple.Decode(k); err == nil && len(key) > 0 {
			if str, ok := key[0].(string); ok {
				name = str
			}
		}
		if len(out) == 0 || out[len(out)-1].Prefix != name {
			out = append(out, PrefixStat{Prefix: name})
		}
		st := &out[len(out)-1]
		n, _ := row[1].(int64)
		x, _ := row[2].(int64)
		st.Rows++
		st.Bytes += n
		st.Expired += x
	}
	return out, nil
}
