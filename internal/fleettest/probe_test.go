package fleettest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"

	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// contents are all that is in the stores of a fleet without replicas.
func contents(t *testing.T, x *failing) string {
	t.Helper()
	var out []string
	for namespace, query := range map[string]string{
		"default": `SELECT 'entry ' || hex(k) FROM kv UNION ALL SELECT 'head ' || class || id FROM obj_head UNION ALL SELECT 'log ' || class || id FROM obj_log
			UNION ALL SELECT 'table ' || name FROM sqlite_schema`,
		labSpace: `SELECT 'table ' || name FROM sqlite_schema`,
	} {
		db, err := libsql.Open(libsql.Config{URL: x.f.Server.URL, Token: serverToken, Namespace: namespace, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		res, err := db.Batch(t.Context(), libsql.Read, libsql.S(query))
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range res[0].Rows {
			out = append(out, namespace+": "+row[0].(string))
		}
	}
	list, err := x.objects.backend.ListBucket(objectBucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Contents {
		out = append(out, "key "+c.Key)
	}
	out = append(out, fmt.Sprintf("%d uploads", x.objects.Uploads(t)))
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// A probe that is interrupted, at whichever of its requests, leaves nothing in
// the stores, whether the request had been executed or not.
func TestInterruptedProbe(t *testing.T) {
	t.Parallel()
	o := startObjectStore(t)
	x := startWireFailing(t, o.Env()...)
	x.objects = o
	for _, r := range []*Replica{x.patient, x.hasty} {
		r.Terminate()
		r.Wait()
	}
	before := contents(t, x)
	// The requests of a whole probe, and the first of each kind that changes
	// something.
	var n atomic.Int64
	var mu sync.Mutex
	first := map[string]int64{}
	see := func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		if at := n.Add(1); kind != "" && first[kind] == 0 {
			first[kind] = at
		}
	}
	o.SetFault(func(r *http.Request) ObjectFault { see(changeOfObjects(r)); return NoFault })
	x.f.Server.SetHook(func(_ context.Context, r hrana.Request) hrana.Fault { see(changeOfSQL(r)); return hrana.Fault{} })
	if res := x.f.Command("probe", "--repeat", "1"); res.Code != 0 {
		t.Fatalf("%+v", res)
	}
	total := n.Load()
	if got := contents(t, x); got != before {
		t.Errorf("a probe left\n%s\nwant\n%s", got, before)
	}
	if len(first) < 8 {
		t.Errorf("the changes are %v", first)
	}
	chosen := slices.Collect(maps.Values(first))
	for at := int64(1); at <= total; at++ {
		for _, executed := range []bool{false, true} {
			if Long(1, 0) == 0 && !(executed && slices.Contains(chosen, at)) {
				continue
			}
			reached := make(chan struct{})
			n.Store(0)
			// Whose client has gone only then.
			halt := func(ctx context.Context) {
				close(reached)
				<-ctx.Done()
			}
			x.f.Server.SetHook(func(ctx context.Context, _ hrana.Request) hrana.Fault {
				switch {
				case n.Add(1) != at:
					return hrana.Fault{}
				case executed:
					return hrana.Fault{After: func(context.Context) { halt(ctx) }, CutAfter: true}
				}
				halt(ctx)
				return hrana.Fault{CutBefore: true}
			})
			o.SetFault(func(r *http.Request) ObjectFault {
				switch {
				case n.Add(1) != at:
					return NoFault
				case executed:
					return HaltDone
				}
				return Silent
			})
			o.SetHalted(func() { close(reached) })
			code, output := interrupt(t, x.f, reached, "probe", "--repeat", "1")
			if code != 130 {
				t.Errorf("interrupted at request %d, executed %v: exit %d: %s", at, executed, code, output)
			}
			x.f.Server.SetHook(nil)
			o.SetFault(nil)
			if got := contents(t, x); got != before {
				t.Fatalf("interrupted at request %d, executed %v, it left\n%s\nwant\n%s", at, executed, got, before)
			}
		}
	}
	t.Logf("%d requests, changes %v", total, first)
}

// changeOfSQL is the kind of a request that changes something, or "".
func changeOfSQL(r hrana.Request) string {
	for _, text := range r.SQL {
		if word, rest, _ := strings.Cut(strings.TrimSpace(text), " "); slices.Contains([]string{"INSERT", "UPDATE", "DELETE", "CREATE", "DROP"}, word) {
			return word + " " + madeUp.ReplaceAllString(rest[:min(len(rest), 50)], "")
		}
	}
	return ""
}

// madeUp are the parts of names that each probe has anew.
var madeUp = regexp.MustCompile(`[0-9a-f]{8,}`)

// changeOfObjects is changeOfSQL for the object store.
func changeOfObjects(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	return r.Method + " " + strings.Join(slices.Sorted(maps.Keys(r.URL.Query())), ",")
}

// interrupt runs a command and sends it a SIGINT when it has reached something.
func interrupt(t *testing.T, f *Fleet, reached <-chan struct{}, args ...string) (code int, output string) {
	t.Helper()
	cmd := f.program(nil, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		cmd.Wait() //nolint:errcheck // it is in ProcessState
	}()
	timer := time.AfterFunc(commandTime, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
	defer timer.Stop()
	select {
	case <-reached:
	case <-done:
		t.Fatalf("dwk %v ended before: %s", args, out.String())
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	<-done
	return cmd.ProcessState.ExitCode(), out.String()
}
