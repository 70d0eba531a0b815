package fleettest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// wantRefusal fails the test unless serve ends by itself, with an exit code that
// is not 0 and one message on stderr that has all the words.
func wantRefusal(t *testing.T, r Result, words ...string) {
	t.Helper()
	var messages []string
	for line := range strings.Lines(r.Stderr) {
		if !strings.HasPrefix(line, "{") { // the log
			messages = append(messages, line)
		}
	}
	if r.Code <= 0 || r.Stdout != "" || len(messages) != 1 {
		t.Errorf("exit %d, stdout %q, stderr:\n%s\nwant one message", r.Code, r.Stdout, r.Stderr)
		return
	}
	for _, word := range words {
		if !strings.Contains(messages[0], word) {
			t.Errorf("%q does not mention %q", messages[0], word)
		}
	}
}

// A replica that cannot use its stores does not start, and says why.
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		r := f.Start()
		address := filepath.Join("data", "central", "coordination.sqlite")
		if kind == Wire {
			address = f.Server.URL
		}

		t.Run("server unreachable", func(t *testing.T) {
			const gone = "http://127.0.0.1:1"
			wantRefusal(t, f.Command("serve", "--libsql-url", gone), "coordination", gone, "refused")
		})
		t.Run("not a database", func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.sqlite")
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, f.Command("serve", "--libsql-url", "file:"+path), "coordination", path, "not a database")
		})
		t.Run("port in use", func(t *testing.T) {
			public, admin := strings.TrimPrefix(r.Public, "http://"), strings.TrimPrefix(r.Admin, "http://")
			wantRefusal(t, f.Command("serve", "--listen", public), "public", public, "in use")
			wantRefusal(t, f.Command("serve", "--admin-listen", admin), "admin", admin, "in use")
		})
		t.Run("local-mode stores", func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "do", "Pod"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "do", "Pod", "0a.sqlite"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			wantRefusal(t, f.CommandEnv([]string{"DWK_DATA_DIR=" + dir}, "serve"), "local mode", dir, "do")
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the refused start left %v in the directory, %v", entries, err)
			}
		})
		t.Run("setting", func(t *testing.T) {
			wantRefusal(t, f.CommandEnv([]string{"DWK_LEASE_TTL=soon"}, "serve"), "lease.ttl", "soon")
			wantRefusal(t, f.Command("serve", "-c", "missing.yaml"), "missing.yaml")
		})
		t.Run("mode", func(t *testing.T) {
			var was struct{ Value string }
			f.JSON(&was, "kv", "get", `["dwk_meta","mode"]`)
			for marker, word := range map[string]string{"central": "older host", "migrating:to-central": "migration", "central/9": "central/9"} {
				f.JSON(&struct{}{}, "kv", "set", `["dwk_meta","mode"]`, `"`+marker+`"`, "--yes")
				wantRefusal(t, f.Command("serve"), address, word)
			}
			f.JSON(&struct{}{}, "kv", "set", `["dwk_meta","mode"]`, `"`+was.Value+`"`, "--yes")
			f.Start()
		})
	})
}

// An expired entry is gone, swept or not.
func TestExpiredIsGone(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		r := f.Start()
		r.Terminate() // so that nobody sweeps
		if code := r.Wait(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		const ttl = time.Second
		begun := time.Now()
		f.JSON(&struct{}{}, "kv", "set", `["short"]`, "1", "--ttl", ttl.String(), "--yes")
		f.JSON(&struct{}{}, "kv", "set", `["long"]`, "1", "--ttl", "1h", "--yes")
		Eventually(t, "the entry expires", func() bool { return f.Command("kv", "get", `["short"]`).Code == 3 })
		if d := time.Since(begun); d < ttl {
			t.Errorf("it expired after %v", d)
		}
		for _, args := range [][]string{{"kv", "list"}, {"kv", "dump"}} {
			r := f.Command(args...)
			if r.Code != 0 || strings.Contains(r.Stdout, "short") || !strings.Contains(r.Stdout, "long") {
				t.Errorf("dwk %v: exit %d\n%s", args, r.Code, r.Stdout)
			}
		}
		var swept struct{ Removed, Left int }
		if f.JSON(&swept, "kv", "sweep", "--dry-run"); swept.Left != 1 {
			t.Errorf("before the sweep %+v, want one left", swept)
		}
		if f.JSON(&swept, "kv", "sweep"); swept.Removed != 1 || swept.Left != 0 {
			t.Errorf("the sweep: %+v", swept)
		}
		f.JSON(&struct{}{}, "kv", "set", `["short"]`, "2", "--if-absent", "--yes")
	})
}

// A probe finds nothing wrong with the stores of a fleet that works, and leaves
// nothing in them.
func TestProbeOfAWorkingFleet(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, steadyLeases)
		r, l := f.Start(), NewLedger("busy")
		before := f.entries()
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					l.Append(r)
				}
			}
		}()
		if p := f.Command("probe"); p.Code != 0 {
			t.Errorf("exit %d: %s%s", p.Code, p.Stdout, p.Stderr)
		}
		close(stop)
		<-done
		f.WaitFree()
		if after := f.entries(); after != before {
			t.Errorf("entries before:\n%safter:\n%s", before, after)
		}
		if n := l.Check(t, r); n == 0 || l.Statuses()[200] != n {
			t.Errorf("the fleet answered %v meanwhile", l.Statuses())
		}
	})
}
