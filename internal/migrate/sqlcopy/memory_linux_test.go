package sqlcopy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

// TestMemory copies a database that is larger than memory may be, in a process
// of its own. DWK_TEST_LONG is needed, and may be the size in MiB. One value
// needs up to five times its own size where SQLite puts it together.
func TestMemory(t *testing.T) {
	if url := os.Getenv("DWK_TEST_MEMORY_URL"); url != "" {
		copyInMemory(t, url, os.Getenv("DWK_TEST_MEMORY_FILE"))
		return
	}
	long := os.Getenv("DWK_TEST_LONG")
	if long == "" {
		t.Skip("DWK_TEST_LONG is not set")
	}
	size, _ := strconv.Atoi(long)
	file := create(t, `PRAGMA synchronous=OFF`, `CREATE TABLE t(a, b)`, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO t SELECT i, randomblob(500) FROM n`, 2000*max(size, 100)), `CREATE TABLE big(a, b, c)`, `INSERT INTO big VALUES (1, randomblob(20000000), 2)`)
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMemory$", "-test.v")
			cmd.Env = append(os.Environ(), "DWK_TEST_MEMORY_URL="+place(t).URL, "DWK_TEST_MEMORY_FILE="+file)
			out, err := cmd.CombinedOutput()
			if t.Logf("%s", out); err != nil {
				t.Error(err)
			}
		})
	}
}

func copyInMemory(t *testing.T, url, file string) {
	dst, err := libsql.Open(libsql.Config{URL: url, Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	back := filepath.Join(t.TempDir(), "back.sqlite")
	for _, step := range []struct {
		name string
		most int // MB
		do   func() error
	}{
		{"up", 200, func() error { _, err := Up(t.Context(), file, dst, Options{}); return err }},
		{"compare", 200, func() error { equal(t, File(file), Database(dst), Options{}); return nil }},
		{"finish", 200, func() error { return Finish(t.Context(), dst, Options{}) }},
		{"down", 200, func() error { _, err := Down(t.Context(), dst, back, Options{}); return err }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		peak := peakMemory(t)
		if t.Logf("%s: at most %d MB", step.name, peak); peak > step.most {
			t.Errorf("%s: %d MB, allowed are %d", step.name, peak, step.most)
		}
	}
}

// peakMemory returns the most memory that this process had, in MB, and begins
// anew.
func peakMemory(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return kb / 1000
}
