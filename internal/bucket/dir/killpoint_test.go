//go:build faults

package dir

import (
	"testing"
)

// TestKillPoints kills a process at each of the steps of a put.
func TestKillPoints(t *testing.T) {
	for _, c := range []struct {
		point string
		old   bool
		want  string
	}{
		{"before", false, ""}, {"between", false, ""}, {"after", false, "new body"},
		{"before", true, "old body"}, {"between", true, "new body"}, {"after", true, "new body"},
	} {
		dir := t.TempDir()
		b := open(t, dir)
		if c.old {
			put(t, b, "d/k", "old body")
		}
		cmd := child(t.Context(), t, "one", dir, "", "DWK_FAILPOINTS=bucket.put."+c.point+"=kill")
		if err := cmd.Run(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("%s: %v", c.point, err)
		}
		check(t, b, "d/k", c.want, "new body")
		age(t, dir)
		if _, err := b.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		check(t, b, "d/k", c.want, "new body")
	}
}
