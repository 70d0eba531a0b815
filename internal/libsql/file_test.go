package libsql_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LIBSQL_TEST_CHILD"); path != "" {
		if err := incrementChild(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// incrementChild says that it is ready, waits for a line, and then increments
// the shared counter until the total is reached; it prints its own share.
func incrementChild(path string) error {
	total, err := strconv.Atoi(os.Getenv("LIBSQL_TEST_TOTAL"))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	db, err := libsql.Open(libsql.Config{URL: "file:" + path})
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, mine := context.Background(), 0
	if _, err := db.Batch(ctx, libsql.Write, libsql.S("CREATE TABLE IF NOT EXISTS n (id INTEGER PRIMARY KEY, n INTEGER)"),
		libsql.S("INSERT INTO n VALUES (1, 0) ON CONFLICT DO NOTHING")); err != nil {
		return fmt.Errorf("creating: %w", err)
	}
	for {
		r, err := db.Batch(ctx, libsql.Write, libsql.S("UPDATE n SET n = n + 1 WHERE n < ? RETURNING n", total))
		if err != nil {
			return fmt.Errorf("incrementing: %w", err)
		}
		if len(r[0].Rows) == 0 {
			fmt.Println(mine)
			return nil
		}
		mine++
	}
}

// Two processes open the same new file at the same moment and write as fast as
// they can: nothing is lost, and both get a share.
func TestFileTwoProcesses(t *testing.T) {
	total := 6000
	if testing.Short() {
		total = 2000
	}
	// Which process a machine lets run is its own business, but not every time.
	for tries := 1; ; tries++ {
		least := twoProcesses(t, total)
		if least >= total/4 {
			return
		}
		if tries == 5 {
			t.Fatalf("a process got %d of %d", least, total)
		}
	}
}

// twoProcesses has two processes count to a total, and returns the smaller share.
func twoProcesses(t *testing.T, total int) (least int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "new", "shared.db")
	type child struct {
		cmd *exec.Cmd
		out *bufio.Reader
		in  interface{ Write([]byte) (int, error) }
	}
	var children []child
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LIBSQL_TEST_CHILD="+path, "LIBSQL_TEST_TOTAL="+strconv.Itoa(total))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, child{cmd, bufio.NewReader(out), in})
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); line != "ready\n" {
			t.Fatal(line, err)
		}
	}
	for _, c := range children {
		fmt.Fprintln(c.in)
	}
	sum, least := 0, total
	for i, c := range children {
		line, _ := c.out.ReadString('\n')
		if err := c.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("process %d: %d of %d", i, n, total)
		sum += n
		least = min(least, n)
	}
	if sum != total {
		t.Errorf("%d increments counted, want %d", sum, total)
	}
	return least
}

func openTemp(t *testing.T) (db *libsql.DB, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "a.db")
	return open(t, libsql.Config{URL: "file:" + path}), path
}

// A lock that another connection holds, as another process would.
func TestFileForeignLock(t *testing.T) {
	db, path := openTemp(t)
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	other, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Exec("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	insert := libsql.S("INSERT INTO t VALUES (2)")
	// On a slow machine the time may be over before it begins.
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err = db.Batch(ctx, libsql.Write, insert)
		cancel()
		if e, ok := errors.AsType[*libsql.Error](err); !ok || e.Kind != libsql.KindTimeout || wait > time.Minute {
			break
		}
	}
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindBusy)
	canceled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err = db.Batch(canceled, libsql.Write, insert)
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindTimeout)
	libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT * FROM t"))
	time.AfterFunc(10*time.Millisecond, func() {
		if err := other.Exec("COMMIT"); err != nil {
			t.Error(err)
		}
	})
	if r := libsqltest.MustBatch(t, db, libsql.Write, insert, libsql.S("SELECT sum(a) FROM t")); r[1].Rows[0][0] != int64(3) {
		t.Errorf("got %v", r[1].Rows)
	}
}

// Who waits for the process's own turn is refused as busy.
func TestFileTurn(t *testing.T) {
	db, _ := openTemp(t)
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"))
	long, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := db.Batch(long, libsql.Write, libsql.S("INSERT INTO t VALUES (1)"),
			libsql.S("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"))
		done <- err
	}()
	var err error
	for err == nil || libsql.OutcomeOf(err) == libsql.Failed { // a slow machine ends it while it runs
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = db.Batch(ctx, libsql.Write, libsql.S("SELECT 1"))
		cancel()
	}
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindBusy)
	end()
	libsqltest.WantError(t, <-done, libsql.Failed, libsql.KindTimeout)
	if r := libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT count(*) FROM t")); r[0].Rows[0][0] != int64(0) {
		t.Errorf("got %v", r[0].Rows)
	}
}

func TestFileSQLiteErrors(t *testing.T) {
	db, _ := openTemp(t)
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S("CREATE TABLE t (a)"), libsql.S("PRAGMA max_page_count=20"))
	_, err := db.Batch(t.Context(), libsql.Write, libsql.S("INSERT INTO t VALUES (1)"), libsql.S("INSERT INTO t VALUES (zeroblob(1000000))"))
	libsqltest.WantError(t, err, libsql.Failed, libsql.KindFull)
	libsqltest.MustBatch(t, db, libsql.Write, libsql.S("INSERT INTO t VALUES (2)"))
	if r := libsqltest.MustBatch(t, db, libsql.Read, libsql.S("SELECT sum(a) FROM t")); r[0].Rows[0][0] != int64(2) {
		t.Errorf("got %v", r[0].Rows)
	}

	dir := t.TempDir()
	_, err = open(t, libsql.Config{URL: "file:" + dir}).Batch(t.Context(), libsql.Write, libsql.S("SELECT 1"))
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindUnreachable)
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, libsql.Config{URL: "file:" + filepath.Join(dir, "text")}).Batch(t.Context(), libsql.Read, libsql.S("SELECT 1"))
	libsqltest.WantError(t, err, libsql.Refused, libsql.KindSQL)
	if _, err := libsql.Open(libsql.Config{URL: "file:" + filepath.Join(dir, "text", "below.db")}); err == nil {
		t.Error("opened a file below a file")
	}
	for _, cfg := range []libsql.Config{
		{URL: "file:x", Timeout: -1}, {URL: "file:x", MaxConns: -1}, {URL: "http://x", Token: "a\nb"}, {URL: "http://x", CA: filepath.Join(dir, "none")}, {URL: "http://x", CA: filepath.Join(dir, "text")},
	} {
		if _, err := libsql.Open(cfg); err == nil {
			t.Errorf("opened %+v", cfg)
		}
	}
}
