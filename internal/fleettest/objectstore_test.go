package fleettest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// wantLarge fails the test unless the replica sees n large rows of a note.
func wantLarge(t *testing.T, r *Replica, note string, n int) {
	t.Helper()
	a := runSQL(r, note, statement{SQL: `SELECT count(*), min(length(replica)) FROM rows`})
	if want := fmt.Sprintf(`"rows":[[%d,400000]]`, n); a.Status != http.StatusOK || !strings.Contains(a.Body, want) {
		t.Errorf("%s: %v, want %s", r.Name, a, want)
	}
}

// Large entries are in the object store, and nowhere else when the replica that
// wrote them is gone.
func TestObjectStore(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		o := startObjectStore(t)
		f := New(t, kind, o.Env()...)
		a, b := f.Start(), f.Start()
		for range 3 {
			if ans := addLarge(a, "n"); ans.Status != http.StatusOK {
				t.Fatal(ans)
			}
		}
		if n := o.Logs(t); n < 3 {
			t.Errorf("%d entries are in the object store", n)
		}
		a.Kill()
		Eventually(t, "the other one takes over", func() bool { return addLarge(b, "n").Status == http.StatusOK })
		wantLarge(t, b, "n", 4)
		wantLarge(t, f.Start(), "n", 4)
		if ans := b.Do(http.MethodPut, "bucket/a/b", "body"); ans.Status/100 != 2 {
			t.Error(ans)
		}
		if ans := f.Start().Get("bucket/a/b"); ans.Body != "body" {
			t.Error(ans)
		}
		if res := f.Command("probe"); res.Code != 0 {
			t.Error(res)
		}
	})
}

// While the object store fails, an event that needs it is refused and nothing
// of it is applied; others go on; and when it is back so is the object, on
// every replica.
func TestObjectStoreFails(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]ObjectFault{
		"unavailable": Unavailable, "cut undone": CutUndone, "cut done": CutDone, "answers cut off": CutAnswer, "denied": ObjectDenied,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startObjectStore(t)
			f := New(t, Wire, o.Env()...)
			a, b := f.Start(), f.Start()
			if ans := addLarge(a, "n"); ans.Status != http.StatusOK {
				t.Fatal(ans)
			}
			for round := 1; round <= 2; round++ {
				o.SetFault(Always(fault))
				ans := addLarge(a, "n")
				done := round
				switch {
				case ans.Status == http.StatusOK && fault == CutAnswer:
					done++ // the answer to a put has no body that could be cut
				default:
					wantRefused(t, ans)
				}
				if ans := a.Post("counter/other/add", ""); ans.Status != http.StatusOK {
					t.Errorf("an event that needs no object store: %v", ans)
				}
				o.SetFault(nil)
				if done == round {
					if ans := addLarge(a, "n"); ans.Status != http.StatusOK {
						t.Fatalf("after the fault: %v", ans)
					}
				}
				wantLarge(t, a, "n", round+1)
			}
			wantLarge(t, b, "n", 3)
			// A replica that must read entries while it cannot.
			c := f.Start()
			o.SetFault(Always(fault))
			if fault != CutDone { // which cuts reads too
				wantRefused(t, runSQL(c, "n", statement{SQL: `SELECT count(*) FROM rows`}))
			}
			o.SetFault(nil)
			wantLarge(t, c, "n", 3)
			if res := f.Command("audit"); res.Code != 0 {
				t.Errorf("audit: %+v", res)
			}
		})
	}
}
