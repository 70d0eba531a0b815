package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// What follows a name in a key: the end of the name, and the tag of the next
// element. Within a name its first byte is always followed by 0xFF.
var (
	beforeNumber = []byte{0x00, 0x03}
	beforeText   = []byte{0x00, 0x02}
)

// maxNames bounds the classes or queues of a status.
const maxNames = 1000

// backlogStatement counts the entries [prefix, name, ...] by name: all, those
// whose number is past, those for which it is by OverdueMs, and the first key. It
// goes from name to name by the keys, so that it reads no values.
func backlogStatement(prefix string, end []byte) libsql.Statement {
	lo := tuple.MustEncode(prefix)
	const name = `substr(k, 1, ?3 + instr(substr(k, ?3 + 1), ?4))`
	count := func(below string) string {
		return `(SELECT count(*) FROM kv WHERE k >= p AND k < CAST(p || ` + below + ` AS BLOB) AND ` + kv.Live + `)`
	}
	return libsql.S(`WITH RECURSIVE names(p, n) AS (
	SELECT (SELECT `+name+` FROM kv WHERE k >= ?1 AND k < ?2 ORDER BY k LIMIT 1), 1
	UNION ALL SELECT (SELECT `+name+` FROM kv WHERE k >= CAST(p || x'FF' AS BLOB) AND k < ?2 ORDER BY k LIMIT 1), n + 1 FROM names WHERE p IS NOT NULL AND n < ?5)
	SELECT p, `+count(`x'FF'`)+`, `+count(kv.KeyNum(kv.Now+` + 1`))+`, `+count(kv.KeyNum(kv.Now+fmt.Sprintf(` - %d`, OverdueMs)))+`,
	(SELECT k FROM kv WHERE k >= p AND k < CAST(p || x'FF' AS BLOB) ORDER BY k LIMIT 1) FROM names WHERE p IS NOT NULL`,
		lo, tuple.RangeEnd(lo), len(lo), end, maxNames)
}

// backlogs puts together what waits, the dead letters and the pauses, in the
// order of the names.
func backlogs(now int64, due, dead, paused libsql.Result) []Backlog {
	all := map[string]*Backlog{}
	of := func(v any) *Backlog {
		k, _ := v.([]byte)
		name := fmt.Sprintf("%x", k)
		if key, err := tuple.Decode(k); err == nil && len(key) > 1 {
			name, _ = key[1].(string)
		}
		if all[name] == nil {
			all[name] = &Backlog{Name: name}
		}
		return all[name]
	}
	for _, row := range due.Rows {
		b := of(row[0])
		b.Pending, _ = row[1].(int64)
		b.Due, _ = row[2].(int64)
		b.Overdue, _ = row[3].(int64)
		if first, ok := row[4].([]byte); ok && b.Due > 0 {
			if key, err := tuple.Decode(first); err == nil && len(key) > 2 {
				ms, _ := key[2].(float64)
				b.OldestMs = max(now-int64(ms), 1)
			}
		}
	}
	for _, row := range dead.Rows {
		b := of(row[0])
		b.Dead, _ = row[1].(int64)
	}
	for _, row := range paused.Rows {
		of(row[0]).Paused = true
	}
	list := []Backlog{}
	for _, b := range slices.SortedFunc(maps.Values(all), func(a, b *Backlog) int { return cmp.Compare(a.Name, b.Name) }) {
		if *b != (Backlog{Name: b.Name}) {
			list = append(list, *b)
		}
	}
	return list
}
