package fleettest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// release builds the last release of releases.txt from the project's history.
func release(t *testing.T) (version, program string) {
	t.Helper()
	list, err := os.ReadFile("../../releases.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(list)), "\n")
	version, commit, _ := strings.Cut(lines[len(lines)-1], " ")
	dir := t.TempDir()
	program = filepath.Join(dir, "dwk")
	for _, args := range [][]string{
		{"git", "worktree", "add", "--detach", filepath.Join(dir, "src"), commit},
		{"go", "-C", filepath.Join(dir, "src"), "build", "-o", program, "./cmd/dwk"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		if args[0] == "git" {
			t.Cleanup(func() {
				exec.Command("git", "-C", "../..", "worktree", "remove", "--force", filepath.Join(dir, "src")).Run() //nolint:errcheck // a temporary directory
			})
		}
	}
	return version, program
}

// This build and the last release serve one store set together, whichever was
// there first, and either goes on alone.
func TestAdjacentReleases(t *testing.T) {
	if os.Getenv("DWK_TEST_LONG") == "" {
		t.Skip("it builds the last release; set DWK_TEST_LONG=1")
	}
	version, program := release(t)
	Each(t, func(t *testing.T, kind Kind) {
		for _, first := range []string{version, "this build"} {
			t.Run(first+" first", func(t *testing.T) {
				f := New(t, kind)
				start := func(old bool) *Replica {
					if f.Program = ""; old {
						f.Program = program
					}
					defer func() { f.Program = "" }()
					return f.Start()
				}
				olderFirst := first == version
				a := start(olderFirst)
				b := start(!olderFirst)
				older, newer := a, b
				if !olderFirst {
					older, newer = b, a
				}
				newer.setAlarm("tea", time.Second)
				count := func(n, from int, fleet ...*Replica) {
					for i := range n {
						r := fleet[i%len(fleet)]
						if got := r.Post("counter/shared/add", ""); got.Status != http.StatusOK || !strings.Contains(got.Body, fmt.Sprintf(`"value":%d}`, from+i+1)) {
							t.Fatalf("add %d at %s: %v", from+i, r.Name, got)
						}
					}
				}
				count(200, 0, older, newer)
				note := strings.Repeat("x", 400<<10) // in the object store
				if got := older.Do(http.MethodPut, "note/large", note); got.Status/100 != 2 {
					t.Fatal(got)
				}
				if got := newer.Get("note/large"); got.Body != note {
					t.Fatalf("the note of %s: %d, %d bytes", version, got.Status, len(got.Body))
				}
				newer.fired("tea")
				a.Terminate()
				if code := a.Wait(); code != 0 {
					t.Errorf("%s first: it ends with %d", first, code)
				}
				count(50, 200, b)
				if r := f.Command("audit"); r.Code != 0 {
					t.Errorf("audit: %+v", r)
				}
			})
		}
	})
}
