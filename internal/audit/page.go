package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Bounds of what one round trip returns.
const (
	keysAtOnce = 500
	// valueBytes is the largest value that is read.
	valueBytes = 4 << 10
)

// bounds returns the range of the keys that extend a prefix.
func bounds(prefix ...any) (lo, hi []byte) {
	lo = tuple.MustEncode(prefix...)
	return lo, tuple.RangeEnd(lo)
}

// keys returns some live keys of a range, and where to go on: nil at the end.
func (a *auditor) keys(ctx context.Context, lo, hi []byte) (keys [][]byte, next []byte, err error) {
	res, err := a.Store.Decide(ctx, libsql.S(`SELECT k FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT ?`, lo, hi, keysAtOnce))
	if err != nil {
		return nil, nil, fmt.Errorf("read entries: %w", err)
	}
	for _, row := range res[0].Rows {
		k, _ := row[0].([]byte)
		keys = append(keys, k)
	}
	if len(keys) == keysAtOnce {
		next = after(keys[len(keys)-1])
	}
	return keys, next, nil
}

// after is the least key above k.
func after(k []byte) []byte { return append(append([]byte{}, k...), 0) }

// each calls f with the keys of a range, some at a time.
func (a *auditor) each(ctx context.Context, lo, hi []byte, f func(keys [][]byte) error) error {
	for lo != nil {
		keys, next, err := a.keys(ctx, lo, hi)
		if err != nil {
			return err
		}
		if err := f(keys); err != nil {
			return err
		}
		lo = next
	}
	return nil
}

// hexList is the JSON list that statements join with.
func hexList(keys [][]byte) string {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = hex.EncodeToString(k)
	}
	b, _ := json.Marshal(list) // it always can be
	return string(b)
}

// A stored entry is a row of kv.
type stored struct {
	key            []byte
	value          json.RawMessage // nil when it is no JSON, or too large to be read
	valid          bool            // whether it is JSON
	stamp          int64
	expires, nowMs int64 // expires is 0 for never
}

// sqlEntry are the columns of a stored entry. A body of a message stays where it is.
const sqlEntry = `k, CASE WHEN json_valid(v) AND length(CAST(v AS BLOB)) <= 4096 THEN v END, json_valid(v), ver, expires_at, ` + kv.Now

func readStored(row libsql.Row) stored {
	e := stored{valid: num(row[2]) != 0, stamp: num(row[3]), expires: num(row[4]), nowMs: num(row[5])}
	e.key, _ = row[0].([]byte)
	if v := text(row[1]); v != "" {
		e.value = json.RawMessage(v)
	}
	return e
}

// read returns the live entries that there are of the keys, in one transaction.
func (a *auditor) read(ctx context.Context, keys [][]byte) (map[string]stored, error) {
	res, err := a.Store.Decide(ctx, libsql.S(`SELECT `+sqlEntry+` FROM json_each(?) f CROSS JOIN kv ON kv.k = unhex(f.value) WHERE `+kv.Live, hexList(keys)))
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	out := make(map[string]stored, len(res[0].Rows))
	for _, row := range res[0].Rows {
		e := readStored(row)
		out[string(e.key)] = e
	}
	return out, nil
}
