package chaos

import (
	"strings"
	"testing"
	"time"
)

// Each thing that is wrong is told, and nothing is wrong with what is right.
func TestDisorder(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	see := func(from, to int, replica string, txid, epoch int64, writes bool) sight {
		return sight{at(from), at(to), replica, txid, epoch, writes}
	}
	for _, c := range []struct {
		name, want string
		list       []sight
	}{
		{"nothing", "", nil},
		{"in order", "", []sight{see(0, 1, "a", 1, 5, true), see(2, 3, "a", 1, 5, false), see(4, 5, "b", 2, 6, true)}},
		{"at the same time", "", []sight{see(0, 9, "a", 1, 5, true), see(1, 3, "b", 2, 6, true)}},
		{"a batch", "", []sight{see(0, 9, "a", 1, 5, true), see(1, 9, "a", 1, 5, true)}},
		{"two holders", "lease 5 is that of", []sight{see(0, 1, "a", 1, 5, true), see(2, 3, "b", 2, 5, true)}},
		{"an old lease", "under lease 4", []sight{see(0, 1, "a", 1, 5, true), see(2, 3, "b", 1, 4, false)}},
		{"an old lease behind one that took long", "under lease 4", []sight{see(0, 10, "a", 1, 4, false), see(1, 3, "b", 2, 5, true), see(5, 6, "a", 2, 4, false)}},
		{"an old state", "at commit 1, asked for", []sight{see(0, 1, "a", 2, 5, true), see(2, 3, "b", 1, 6, false)}},
		{"a write that is none", "asked for when that had been answered", []sight{see(0, 1, "a", 2, 5, true), see(2, 3, "b", 2, 6, true)}},
	} {
		if got := disorder(c.list); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCronProblems(t *testing.T) {
	line := func(at int64, attempt int, outcome string) cronLine { return cronLine{at, attempt, "a", outcome} }
	run := func(at int64, attempt int, replica string) cronRun {
		return cronRun{At: at, Attempt: attempt, Replica: replica}
	}
	for _, c := range []struct {
		name, want string
		list       []cronLine
		runs       []cronRun
	}{
		{"all ran", "", []cronLine{line(1000, 1, "ok"), line(2000, 1, "ok")}, []cronRun{run(1000, 1, "a"), run(2000, 1, "a"), run(3000, 1, "b")}},
		{"cut off and repeated", "", []cronLine{line(1000, 1, "interrupted"), line(1000, 2, "ok")}, []cronRun{run(1000, 1, "a"), run(1000, 2, "a")}},
		{"skipped and missed", "", []cronLine{line(1000, 1, "ok"), line(2000, 0, "missed"), line(3000, 0, "skipped")}, nil},
		{"finished twice", "2 of them finished", []cronLine{line(1000, 1, "ok"), line(1000, 2, "ok")}, nil},
		{"a hole", "nothing tells of occurrence 2000", []cronLine{line(1000, 1, "ok"), line(3000, 1, "ok")}, nil},
		{"three runs", "3 runs", []cronLine{line(1000, 1, "interrupted"), line(1000, 2, "interrupted"), line(1000, 3, "ok")}, nil},
		{"made twice", "was made twice", []cronLine{line(1000, 1, "ok")}, []cronRun{run(1000, 1, "a"), run(1000, 1, "a")}},
		{"unknown to the history", "of which the history tells nothing", []cronLine{line(1000, 1, "ok")}, []cronRun{run(1000, 1, "b")}},
	} {
		got := strings.Join(cronProblems(c.list, c.runs), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A seed draws the same plan each time, and different seeds different ones.
func TestPlansAreDrawn(t *testing.T) {
	seen := map[string]bool{}
	for _, focus := range Focuses {
		for seed := range uint64(50) {
			p := Draw(seed, DrawOptions{Focus: focus})
			text := p.String()
			if other := Draw(seed, DrawOptions{Focus: focus}).String(); other != text {
				t.Fatalf("seed %d draws\n%s\nand\n%s", seed, text, other)
			}
			if seen[text] {
				t.Errorf("seed %d draws what another does", seed)
			}
			seen[text] = true
			for i, s := range p.steps {
				if s.beside && (i == 0 || faults[s.fault].alone || faults[p.steps[i-1].fault].alone) {
					t.Errorf("seed %d: step %d is beside what must be alone:\n%s", seed, i+1, text)
				}
			}
		}
	}
	for name := range weightsOf() {
		if _, ok := faults[name]; !ok {
			t.Errorf("there is no fault %q", name)
		}
	}
}

func weightsOf() map[string]bool {
	names := map[string]bool{}
	for _, m := range weights {
		for name := range m {
			names[name] = true
		}
	}
	return names
}
