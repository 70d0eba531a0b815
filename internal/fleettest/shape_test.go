package fleettest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// Every request whose answer decides something holds a write, so that a read
// replica of the primary passes it on instead of answering from an older state.
func TestDecidingRequestsHoldAWrite(t *testing.T) {
	t.Parallel()
	f := New(t, Wire, Tracked)
	var mu sync.Mutex
	seen := map[string][]string{} // statements by their text
	f.Server.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault {
		mu.Lock()
		defer mu.Unlock()
		if text := strings.Join(r.SQL, ";\n"); r.Path == "/v2/pipeline" && mentions(text, "kv", "kv_meta", "obj_head", "obj_log") {
			seen[text] = r.SQL
		}
		return hrana.Fault{}
	})
	a, b := f.Start(), f.Start()
	asleep := a.Sleep("n", TTL) // renewed meanwhile
	read := a.Go(http.MethodGet, "note/n/sleeps", "")
	contended := b.Go(http.MethodPost, "note/n/sleep?ms=0", "")
	for _, c := range []<-chan Answer{asleep, read, contended} {
		if ans := <-c; ans.Status != http.StatusOK {
			t.Error(ans)
		}
	}
	b.Get("note/n/sleeps")
	f.Command("lease", "inspect", "Note", "--name", "n")
	f.JSON(&struct{}{}, "kv", "get", `["dwk_meta","mode"]`)
	f.WaitFree()
	a.Terminate()
	a.Wait()

	mu.Lock()
	defer mu.Unlock()
	for text, stmts := range seen {
		writes := false
		for _, s := range stmts {
			word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
			writes = writes || word == "UPDATE" || word == "INSERT" || word == "DELETE" || word == "CREATE"
		}
		if stmts[0] != "BEGIN IMMEDIATE" || !writes {
			t.Errorf("no write in:\n%s", text)
		}
	}
	for name, is := range map[string]func(string) bool{"acquire": isAcquire, "commit": isCommit, "release": isRelease} {
		found := false
		for text := range seen {
			found = found || is(text)
		}
		if !found {
			t.Errorf("no %s among %d requests", name, len(seen))
		}
	}
}

// mentions reports whether SQL text reads or writes one of the tables.
func mentions(sql string, tables ...string) bool {
	for _, table := range tables {
		for _, word := range []string{"FROM ", "JOIN ", "INTO ", "UPDATE "} {
			if strings.Contains(sql, word+table) {
				return true
			}
		}
	}
	return false
}
