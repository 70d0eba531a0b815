package fleettest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A dump has all entries, however many, and takes no more memory for more.
func TestDumpInConstantMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    Kind
		n, size int
	}{
		{File, Long(300_000, 30_000), 300},
		{Wire, Long(20_000, 5_000), 2000},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			f, n := New(t, c.kind), c.n
			value := `"` + strings.Repeat("x", c.size) + `"`
			r := f.Start()
			r.Terminate()
			r.Wait()
			few := n / 4
			f.fill(value, 0, few)
			small := f.dump(value, few)
			f.fill(value, few, n)
			large := f.dump(value, n)
			t.Logf("%d entries: %d KiB at most; %d entries: %d KiB", few, small, n, large)
			// The entries in which they differ are larger than what is allowed.
			if allowed := 6 << 10; large > small+allowed {
				t.Errorf("%d entries took %d KiB, %d entries %d KiB", few, small, n, large)
			}
		})
	}
}

// database opens the coordination database, until the end of the test.
func (f *Fleet) database() *libsql.DB {
	f.t.Helper()
	if f.sql != nil {
		return f.sql.Open(f.t)
	}
	url := "file:" + filepath.Join(f.DataDir, "central", "coordination.sqlite")
	if f.Server != nil {
		url = f.Server.URL
	}
	db, err := libsql.Open(libsql.Config{URL: url, Timeout: time.Minute})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { db.Close() })
	return db
}

// fill stores the entries ["dump", from] to ["dump", to-1].
func (f *Fleet) fill(value string, from, to int) {
	f.t.Helper()
	store := kv.New(f.database())
	const batch = 2000
	for ; from < to; from += batch {
		p := kv.NewPlan()
		for i := from; i < min(from+batch, to); i++ {
			p.Set(tuple.MustEncode("dump", float64(i)), value, 0)
		}
		if v, err := store.Commit(context.Background(), p); err != nil || !v.OK {
			f.t.Fatalf("fill: %v %v", v.OK, err)
		}
	}
}

// dump runs kv dump, checks that it has the n entries of fill and the right
// trailer, and returns the most memory that the process had, in KiB, 0 where
// systems do not tell.
func (f *Fleet) dump(value string, n int) (peak int) {
	t := f.t
	t.Helper()
	cmd := f.program(nil, "kv", "dump")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	sum, entries, others := sha256.New(), 0, 0
	var trailer struct {
		Entries int
		SHA256  string
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Bytes()
		if !strings.HasPrefix(string(line), `{"key":`) {
			if err := json.Unmarshal(line, &trailer); err != nil {
				t.Errorf("%v in %s", err, line)
			}
			continue
		}
		sum.Write(line)
		sum.Write([]byte("\n"))
		if want := fmt.Sprintf(`{"key":["dump",%d],"value":%s,`, entries, value); strings.HasPrefix(string(line), want) {
			entries++
		} else {
			others++
		}
		if (entries+others)%500 == 0 {
			peak = max(peak, peakMemory(cmd.Process.Pid))
		}
	}
	if _, err := io.Copy(io.Discard, out); err != nil || lines.Err() != nil {
		t.Error(err, lines.Err())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("dump: %v %s", err, &stderr)
	}
	if entries != n || trailer.Entries != entries+others || trailer.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		t.Errorf("%d entries of %d and %d others, trailer %+v", entries, n, others, trailer)
	}
	return peak
}

// peakMemory returns the most memory that a process has had, in KiB. What the
// system says about one that has ended includes that of its parent.
func peakMemory(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			return n
		}
	}
	return 0
}
