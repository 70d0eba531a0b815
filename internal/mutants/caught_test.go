package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// A test may take limit to find a mutant. The simulation begins nothing new at the
// end of that time: a mutant may have it hang.
const limit = 60 * time.Second

// TestMutantsAreFound runs what must find each mutant, with three seeds, and
// first without any mutant. DWK_TEST_MUTANTS is where the records go, and
// DWK_TEST_MUTANTS_SEEDS how many seeds there are.
func TestMutantsAreFound(t *testing.T) {
	out := os.Getenv("DWK_TEST_MUTANTS")
	if out == "" {
		t.Skip("make mutants")
	}
	seeds := 3
	if text := os.Getenv("DWK_TEST_MUTANTS_SEEDS"); text != "" {
		if _, err := fmt.Sscan(text, &seeds); err != nil {
			t.Fatal(err)
		}
	}
	all := load(t)
	var records []figures.Mutant
	clean := map[string]bool{}
	for _, m := range all {
		if !clean[m.by] {
			clean[m.by] = true
			t.Run("clean/"+m.by, func(t *testing.T) {
				b := build(t, mutant{by: m.by})
				for seed := 1; seed <= seeds; seed++ {
					if found, _, text := b.run(t, seed, limit); found {
						t.Errorf("it fails without a mutant, seed %d:\n%s", seed, text)
					}
				}
			})
		}
		t.Run(m.name, func(t *testing.T) {
			r := figures.Mutant{Name: m.name, What: m.what, By: m.by}
			b := build(t, m)
			for seed := 1; seed <= seeds; seed++ {
				found, took, text := b.run(t, seed, limit)
				if !found {
					t.Errorf("mutant %s survives seed %d: %s", m.name, seed, m.what)
					r.Seconds = append(r.Seconds, 0)
					break
				}
				if r.Found == "" {
					r.Found = firstLine(text)
				}
				r.Seconds = append(r.Seconds, float64(took.Milliseconds())/1000)
			}
			t.Logf("%v: %s", r.Seconds, r.Found)
			records = append(records, r)
		})
	}
	text, err := json.MarshalIndent(figures.Mutants{
		At: clock.Now().UTC().Format(time.DateOnly), Conditions: conditions(seeds), Mutants: records,
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(out, append(text, '\n'), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// conditions are what a record was made under.
func conditions(seeds int) string {
	c := fmt.Sprintf("%d seeds, %s, %d processors", seeds, runtime.Version(), runtime.NumCPU())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		c += ", a load of " + strings.Fields(string(load))[2] + " in the last quarter of an hour"
	}
	return c
}

// A built is a test program with a mutant in it.
type built struct {
	program, folder string
	args            []string
	rapid           bool // it takes a seed as such tests do
}

// build compiles what must find a mutant, with its changes laid over the tree.
func build(t *testing.T, m mutant) built {
	t.Helper()
	dir := t.TempDir()
	files, err := m.files()
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(top, path)] = to
	}
	text, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := built{program: filepath.Join(dir, "program"), folder: "internal/sim", args: []string{"-test.run=^TestSimulation$"}}
	if f := strings.Fields(m.by); len(f) == 3 && (f[0] == "test" || f[0] == "rapid") {
		b.folder, b.args, b.rapid = f[1], []string{"-test.run=^" + f[2] + "$"}, f[0] == "rapid"
	} else if m.by != "sim" {
		t.Fatalf("mutant %s is to be found by %q, which is nothing known", m.name, m.by)
	}
	b.folder = filepath.Join(top, b.folder)
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", b.program, ".")
	cmd.Dir = b.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mutant %s does not compile: %v\n%s", m.name, err, out)
	}
	return b
}

// run runs the tests with a seed, for so long, and tells whether they failed.
func (b built) run(t *testing.T, seed int, during time.Duration) (found bool, took time.Duration, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*during)
	defer cancel()
	args := append(b.args[:len(b.args):len(b.args)], fmt.Sprintf("-test.timeout=%s", during))
	if b.rapid {
		args = append(args, fmt.Sprintf("-rapid.seed=%d", seed), "-rapid.nofailfile")
	}
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Dir = b.folder
	cmd.Env = append(os.Environ(), fmt.Sprintf("DWK_SIM_SEED=%d", seed), fmt.Sprintf("DWK_SIM_TIME=%s", during*2/3))
	begun := clock.Now()
	out, err := cmd.CombinedOutput()
	took = clock.Since(begun)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return err != nil, took, string(out)
}

// firstLine is the first line of a failed test's output that says something.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") && !strings.Contains(line, "_test.go") {
			return line
		}
	}
	return ""
}
