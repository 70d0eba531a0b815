package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBesideSection(t *testing.T) {
	dir := t.TempDir()
	if text, err := besideSection(dir); text != "" || err != nil {
		t.Errorf("without a record: %q, %v", text, err)
	}
	b, err := json.Marshal(Beside{Rounds: 5, Versions: map[string]string{"other": "other 1.2"}, Cases: []BesideCase{
		{Name: "counters", Clients: 16, Sides: []BesideSide{{Name: "dwk", Rate: 1000, CPU: 12.4, Fsyncs: 0.25}, {Name: "other", Rate: 100, Fsyncs: 1}}, Ratio: 10.01, Aim: 10},
		{Name: "one", Clients: 8, Sides: []BesideSide{{Name: "dwk", Fsyncs: 1}, {Name: "other"}}, Ratio: 77, Aim: 3, Unequal: true},
	}})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, BesideFile), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := besideSection(dir)
	for _, want := range []string{
		"Medians of 5 rounds", "other: 1.2. ", "| counters, 16 clients | dwk | 1000 | 0.00 ms | 0.00 ms | 12 µs | 0.25 | 10.01 | 10 |\n",
		"|  | other | 100 | 0.00 ms | 0.00 ms | in the client | 1.00 | |  |\n", "| 1.00 | unequal |  |\n",
	} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v, no %q in %s", err, want, text)
		}
	}
	if strings.Contains(text, "77") {
		t.Errorf("what is unequal has a ratio: %s", text)
	}
	if err := os.WriteFile(filepath.Join(dir, BesideFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := besideSection(dir); err == nil {
		t.Error("a broken record is none")
	}
}
