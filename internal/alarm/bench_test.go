package alarm

import (
	"fmt"
	"testing"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// fill makes objects with an alarm each, all in the future.
func (r *rig) fill(n int) {
	r.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
	INSERT INTO kv(k, v, ver) SELECT CAST(? || `+keyOf(`(4000000000000 + i)`)+` || ? || CAST(printf('%06x', i) AS BLOB) || x'00' AS BLOB), '{"epochMs":'||(4000000000000 + i)||',"retryCount":0}', 1 FROM n`,
		n, tuple.MustEncode(DuePrefix, class), []byte{2})
	r.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
	INSERT INTO kv(k, v, ver) SELECT CAST(? || CAST(printf('%06x', i) AS BLOB) || x'00' AS BLOB), '{"epochMs":'||(4000000000000 + i)||',"retryCount":0}', 1 FROM n`,
		n, append(tuple.MustEncode(SlotPrefix, class), 2))
}

// BenchmarkIdleTake is a poll that finds nothing due, with more and more alarms
// pending. It should not notice.
func BenchmarkIdleTake(b *testing.B) {
	for _, n := range []int{0, 1000, 200_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b, libsqltest.File(b))
			if n > 0 {
				r.fill(n)
			}
			b.ReportAllocs()
			for b.Loop() {
				if taken, looked := r.take(10, Take{}); len(taken) > 0 || looked.Due > 0 {
					b.Fatal(looked)
				}
			}
		})
	}
}
