package figures

import (
	"fmt"
	"slices"
	"strings"
)

// Mutants is what became of the code with its guards removed, one at a time.
type Mutants struct {
	At         string   `json:"at"`
	Conditions string   `json:"conditions"`
	Mutants    []Mutant `json:"mutants"`
}

// A Mutant is one of them.
type Mutant struct {
	Name string `json:"mutant"`
	// What is done wrong, and By is the test that is to notice.
	What string `json:"what"`
	By   string `json:"by"`
	// Seconds are how long it lived, by seed; 0, with which it ends, when it
	// survived.
	Seconds []float64 `json:"seconds"`
	// Found is what told of it first.
	Found string `json:"found"`
}

func mutantsSection(dir string) (string, error) {
	var all Mutants
	if ok, err := read(dir, "mutants.json", &all); !ok || err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `## Mutants

The code with one guard removed, and how long it took a test to notice, in seconds, for each of some seeds (`+"`make mutants`"+`;
[testing.md](testing.md)). Made on %s: %s.

| what is done wrong | found by | after seconds |
| --- | --- | --- |
`, all.At, all.Conditions)
	found := 0
	for _, m := range all.Mutants {
		seconds := make([]string, len(m.Seconds))
		for i, s := range m.Seconds {
			seconds[i] = fmt.Sprintf("%.1f", s)
			if s == 0 {
				seconds[i] = "survived"
			}
		}
		by := "the simulation"
		if f := strings.Fields(m.By); len(f) == 3 {
			by = fmt.Sprintf("`%s` of `%s`", f[2], strings.TrimPrefix(f[1], "./"))
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s |\n", strings.ReplaceAll(m.Name, "-", " "), m.What, by, strings.Join(seconds, ", "))
		if len(m.Seconds) > 0 && !slices.Contains(m.Seconds, 0) {
			found++
		}
	}
	fmt.Fprintf(&b, "\n%d of %d are found with every seed.\n", found, len(all.Mutants))
	return b.String(), nil
}
