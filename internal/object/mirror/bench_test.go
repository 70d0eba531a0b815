package mirror

import (
	"fmt"
	"testing"
)

// filled returns a mirror with about size bytes of content.
func filled(b *testing.B, size int) (m *Mirror, first *Entry) {
	b.Helper()
	m = newMirror(b, Config{MaxEntry: 1 << 30})
	exec(b, m, `CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b TEXT);
		WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < ?)
		INSERT INTO t SELECT x, 0, hex(randomblob(100)) FROM c`, max(size/220, 1))
	return m, commit(b, m)
}

var benchSizes = []int{8 << 10, 1 << 20, 50 << 20}

func forSizes(b *testing.B, fn func(b *testing.B, m *Mirror, first *Entry)) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			m, first := filled(b, size)
			b.ReportAllocs()
			b.ResetTimer()
			fn(b, m, first)
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	forSizes(b, func(b *testing.B, m *Mirror, _ *Entry) {
		for b.Loop() {
			value(b, m, "SELECT a FROM t WHERE id = 1")
			if err := m.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	m, _ := filled(b, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		exec(b, m, "UPDATE t SET a = a + 1 WHERE id = ?", 1)
	}
}

func BenchmarkUpdateAndCommit(b *testing.B) {
	forSizes(b, func(b *testing.B, m *Mirror, _ *Entry) {
		n := 0
		for b.Loop() {
			n++
			exec(b, m, "UPDATE t SET a = a + 1 WHERE id = ?", 1+n%30)
			commit(b, m)
		}
	})
}

func BenchmarkCaptureNothing(b *testing.B) {
	m, _ := filled(b, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		if e, err := m.Capture(); e != nil || err != nil {
			b.Fatal(e, err)
		}
	}
}

func BenchmarkUpdateAndUndo(b *testing.B) {
	forSizes(b, func(b *testing.B, m *Mirror, _ *Entry) {
		for b.Loop() {
			exec(b, m, "UPDATE t SET a = a + 1 WHERE id = ?", 1)
			if err := m.Undo(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHandOver measures the way of one commit to another replica: close,
// apply, open, first query.
func BenchmarkHandOver(b *testing.B) {
	forSizes(b, func(b *testing.B, m *Mirror, first *Entry) {
		other := newMirror(b, Config{})
		if err := other.Apply(first.Data); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			b.StopTimer()
			exec(b, m, "UPDATE t SET a = a + 1 WHERE id = ?", 1)
			e := commit(b, m)
			b.StartTimer()
			if err := other.Apply(e.Data); err != nil {
				b.Fatal(err)
			}
			value(b, other, "SELECT a FROM t WHERE id = 1")
		}
	})
}

func BenchmarkRestore(b *testing.B) {
	forSizes(b, func(b *testing.B, _ *Mirror, first *Entry) {
		m := newMirror(b, Config{})
		b.SetBytes(int64(first.Pages) * int64(first.PageSize))
		for b.Loop() {
			if err := m.Apply(first.Data); err != nil {
				b.Fatal(err)
			}
			if err := m.Discard(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	forSizes(b, func(b *testing.B, m *Mirror, first *Entry) {
		b.SetBytes(int64(first.Pages) * int64(first.PageSize))
		for b.Loop() {
			if err := m.Verify(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
