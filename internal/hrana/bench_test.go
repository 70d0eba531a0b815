package hrana_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// serveVariable names the file that a process of this test serves, instead of
// testing, until its standard input ends.
const serveVariable = "DWK_TEST_HRANA_SERVE"

// serveUntilEOF is what such a process does.
func serveUntilEOF(path string) {
	s, err := hrana.New(hrana.Config{Path: path})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	h := httptest.NewServer(s)
	fmt.Println(h.URL)
	io.Copy(io.Discard, os.Stdin)
	h.Close()
	s.Close()
}

// startProcess starts a server that is a process of its own.
func startProcess(b *testing.B) (url string) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+filepath.Join(b.TempDir(), "bench.sqlite"))
	_, ask := pipe(b, cmd)
	return ask("")
}

// pipe starts a process to which a line may be written, and that answers with
// one.
func pipe(b *testing.B, cmd *exec.Cmd) (*exec.Cmd, func(line string) string) {
	b.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	return cmd, func(line string) string {
		if line != "" {
			if _, err := io.WriteString(in, line+"\n"); err != nil {
				b.Fatal(err)
			}
		}
		if !lines.Scan() {
			b.Fatalf("%s does not answer: %v", cmd.Path, lines.Err())
		}
		return lines.Text()
	}
}

// BenchmarkBesideNode runs the same batches with the client of this project and
// with @libsql/client from npm, in turn, at a server that is a process of its
// own. "x" is Node's time over ours, by their medians: above 1 ours is faster.
func BenchmarkBesideNode(b *testing.B) {
	dir := os.Getenv("DWK_TEST_NPM")
	if dir == "" {
		b.Skip("needs npm: make bench-npm")
	}
	url := startProcess(b)
	db, err := libsql.Open(libsql.Config{URL: url, Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	defer http.DefaultClient.CloseIdleConnections()
	const create = `(id INTEGER PRIMARY KEY, v TEXT, n INTEGER)`
	if _, err := db.Batch(b.Context(), libsql.Write, libsql.S(`CREATE TABLE bench`+create), libsql.S(`CREATE TABLE bench_ours`+create), libsql.S(`CREATE TABLE bench_node`+create),
		libsql.S(`WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i LIMIT 100) INSERT INTO bench(v, n) SELECT 'value ' || n, n FROM i`)); err != nil {
		b.Fatal(err)
	}
	node := exec.Command("node", "bench.mjs")
	node.Dir, node.Env = dir, append(os.Environ(), "LIBSQL_URL="+url)
	_, ask := pipe(b, node)
	for _, c := range []struct {
		n    int
		read bool
	}{{1, false}, {10, false}, {100, false}, {1, true}, {10, true}} {
		name := fmt.Sprintf("%s/%d", map[bool]string{false: "insert", true: "select100"}[c.read], c.n)
		b.Run(name, func(b *testing.B) {
			var stmts []libsql.Statement
			mode := libsql.Write
			for i := range c.n {
				if c.read {
					mode = libsql.Read
					stmts = append(stmts, libsql.S(`SELECT id, v, n FROM bench WHERE id <= ?`, 100))
				} else {
					stmts = append(stmts, libsql.S(`INSERT INTO bench_ours (v, n) VALUES (?, ?)`, fmt.Sprint("value ", i), i))
				}
			}
			ours := func() float64 {
				began := time.Now()
				res, err := db.Batch(b.Context(), mode, stmts...)
				if err != nil || len(res) != c.n {
					b.Fatalf("%d results, %v", len(res), err)
				}
				return float64(time.Since(began).Nanoseconds()) / 1e6
			}
			theirs := func() (ms float64) {
				line := ask(fmt.Sprintf(`{"n":%d,"read":%t}`, c.n, c.read))
				if _, err := fmt.Sscan(strings.TrimSpace(line), &ms); err != nil {
					b.Fatalf("%v in %q", err, line)
				}
				return ms
			}
			for range 20 { // Node compiles what runs often
				theirs()
				ours()
			}
			var us, them []float64
			for b.Loop() {
				us, them = append(us, ours()), append(them, theirs())
			}
			slices.Sort(us)
			slices.Sort(them)
			mine, other := us[len(us)/2], them[len(them)/2]
			b.ReportMetric(other/mine, "x")
			b.ReportMetric(mine*1000, "µs/ours")
			b.ReportMetric(other*1000, "µs/node")
			b.ReportMetric(0, "ns/op")
		})
	}
}
