package figures

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/figures.md")

const (
	documentFile = "../../../docs/figures.md"
	recordsDir   = "../../../docs/figures"
)

// The document says what the records say.
func TestFiguresDocument(t *testing.T) {
	want, err := Document(recordsDir)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(documentFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the records say: run this with -update", documentFile)
	}
}

func TestSummarize(t *testing.T) {
	a := Robustness{
		Seed: 2, At: "2", Verdict: Held, Operations: map[string]int{"note": 3}, Lateness: []int64{5, 1}, Faults: map[string]int{"killed": 1},
		Takeovers: Takeovers{Kill: []int64{2000}}, Conditions: Conditions{Commit: "x", LeaseTTL: 2000, Load: 3}, Acknowledged: map[string]int{"killed": 2},
	}
	b := Robustness{
		Seed: 1, At: "1", Verdict: Violated, Operations: map[string]int{"note": 1, "counter": 2}, Lateness: []int64{9}, Lost: 1, Elapsed: 4000,
		Takeovers: Takeovers{Kill: []int64{3000, 1000}}, Conditions: Conditions{Commit: "x", LeaseTTL: 2000, Load: 1}, Violations: []Violation{{"output gate", "lost", "note/a", "gone"}},
	}
	s := Summarize([]Robustness{a, b})
	if s.Total != 6 || s.Schedules != 2 || s.Lost != 1 || s.Violations != 1 || s.From != "1" || s.To != "2" || s.Load != [2]float64{1, 3} || !slices.Equal(s.Commits, []string{"x"}) {
		t.Errorf("%+v", s)
	}
	if got := s.Takeovers[2000]["kill"]; got != (Spread{3, 2000, 3000, 3000, 3000}) {
		t.Errorf("takeovers %+v", got)
	}
	if s.Lateness != (Spread{3, 5, 9, 9, 9}) {
		t.Errorf("lateness %+v", s.Lateness)
	}
	text := s.Markdown()
	for _, want := range []string{"**1** of 2", "| killed | 1 | 2 |", "seed 1: output gate, lost: note/a: gone", "| 2 s | killed | 3 | 2.00 s |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
