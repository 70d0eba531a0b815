package fleettest

import (
	"fmt"
	"net/http"
	"testing"
)

// A command that dies while it restores or deletes an object leaves it as it
// was, or as it was to become, and a lease that ends by itself. The next one
// works.
func TestObjectCommandsAreKilled(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind, "DWK_OBJECTS_INLINE_LIMIT=64")
		r := f.Start()
		for _, c := range []struct {
			point   string
			delete  bool
			applied bool
		}{
			{point: "objectops.put.after"},
			{point: "objectops.commit.before"},
			{point: "objectops.commit.after", applied: true},
			{point: "objectops.commit.before", delete: true},
			{point: "objectops.commit.after", delete: true, applied: true},
		} {
			t.Run(fmt.Sprintf("%s %v", c.point, c.delete), func(t *testing.T) {
				const n = 5
				name := fmt.Sprintf("%s.%v", c.point, c.delete)
				for range n {
					if a := addRow(r, name); a.Status != http.StatusOK {
						t.Fatal(a)
					}
				}
				args, after := []string{"object", "restore", "Note", "--name", name, "--to", "2", "--yes"}, 2
				if c.delete {
					args, after = []string{"object", "delete", "Note", "--name", name, "--yes"}, 0
				}
				if res := f.CommandEnv([]string{"DWK_FAILPOINTS=" + c.point + "=kill"}, args...); res.Code != -1 {
					t.Errorf("exit %d, want a death: %s%s", res.Code, res.Stdout, res.Stderr)
				}
				want := n
				if c.applied {
					want = after
				}
				wantRows(t, r, name, want) // waits for the lease to end
				if a := addRow(r, name); a.Status != http.StatusOK {
					t.Error(a)
				}
				wantRows(t, r, name, want+1)
				// Every row of the log leads somewhere.
				if res := f.Command("object", "restore", "Note", "--name", name, "--to", "1s", "--dry-run"); res.Code != 0 && res.Code != 3 {
					t.Errorf("drill: exit %d: %s", res.Code, res.Stderr)
				}
				if c.delete && c.applied {
					return // the commits are gone
				}
				if res := f.Command(args...); res.Code != 0 {
					t.Errorf("once more: exit %d: %s", res.Code, res.Stderr)
				}
				wantRows(t, r, name, after)
			})
		}
		f.WaitFree()
	})
}
