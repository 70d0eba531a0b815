package sqlcopy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// BenchmarkCopy compares, in rows a second, a copy and a comparison with what
// the sqlite3 tool does. DWK_BENCH_ROWS is the size of the database.
func BenchmarkCopy(b *testing.B) {
	rows := 100_000
	if s := os.Getenv("DWK_BENCH_ROWS"); s != "" {
		var err error
		if rows, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	file := create(b, `PRAGMA synchronous=OFF`,
		`CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT NOT NULL, n INTEGER, r REAL, body TEXT, data BLOB)`,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			INSERT INTO t SELECT i, 'name ' || i, i * 7919 %% 1000003, i / 7.0, printf('some text that is stored with number %%d, and a little more of it', i), randomblob(40) FROM n`, rows),
		`CREATE INDEX t_n ON t(n)`)
	target := func(b *testing.B, p libsqltest.Place) *libsql.DB { return p.Open(b) }
	// begin returns what reports the rows a second, and the CPU time of a row, with
	// that of the server or of the tool.
	begin := func(b *testing.B) func() {
		began, cpu := time.Now(), cpuTime(b)
		return func() {
			n := float64(rows) * float64(b.N)
			b.ReportMetric(n/time.Since(began).Seconds(), "rows/s")
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/n, "µs-CPU/row")
			b.ReportMetric(0, "ns/op")
		}
	}
	for _, name := range []string{"file", "wire"} {
		b.Run("up "+name, func(b *testing.B) {
			report := begin(b)
			for range b.N {
				if _, err := Up(b.Context(), file, target(b, libsqltest.Places[name](b)), Options{}); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
		dst := target(b, libsqltest.Places[name](b))
		if _, err := Up(b.Context(), file, dst, Options{}); err != nil {
			b.Fatal(err)
		}
		b.Run("compare "+name, func(b *testing.B) {
			report := begin(b)
			for range b.N {
				if d, err := Compare(b.Context(), File(file), Database(dst), Options{}); err != nil || !d.Equal() {
					b.Fatal(d, err)
				}
			}
			report()
		})
		if err := Finish(b.Context(), dst, Options{}); err != nil {
			b.Fatal(err)
		}
		b.Run("down "+name, func(b *testing.B) {
			report := begin(b)
			for i := range b.N {
				if _, err := Down(b.Context(), dst, filepath.Join(b.TempDir(), fmt.Sprint(i)), Options{}); err != nil {
					b.Fatal(err)
				}
			}
			report()
		})
	}
	tool, err := exec.LookPath("sqlite3")
	if err != nil {
		b.Skip("there is no sqlite3 to compare with")
	}
	for name, command := range map[string]string{"dump": `"$0" "$1" .dump | "$0" "$2"`, "vacuum": `"$0" "$1" "VACUUM INTO '$2'"`} {
		b.Run(name, func(b *testing.B) {
			report := begin(b)
			for i := range b.N {
				if out, err := exec.Command("sh", "-c", command, tool, file, filepath.Join(b.TempDir(), fmt.Sprint(i))).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
			report()
		})
	}
}

// cpuTime is that of this process and of those that it has waited for.
func cpuTime(b *testing.B) (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
