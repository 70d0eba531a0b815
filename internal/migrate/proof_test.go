package migrate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
)

// checkProof reads a proof as somebody does who trusts nobody.
func checkProof(t *testing.T, text []byte) {
	t.Helper()
	lines := bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) < 2 {
		t.Fatalf("proof of %d lines", len(lines))
	}
	type side struct {
		SHA256  string            `json:"sha256"`
		Content string            `json:"content_sha256"`
		Alarm   *int64            `json:"alarm"`
		Tables  map[string]any    `json:"tables"`
		Queues  map[string]int64  `json:"messages"`
		Meta    map[string]string `json:"metadata"`
	}
	type line struct {
		Type, Item, Kind, Outcome, Verified, SHA256, Format string
		Source, Target                                      *side
		Complete                                            bool
	}
	h := sha256.New()
	for i, raw := range lines {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		switch {
		case i == 0 && (l.Type != "begin" || l.Format == ""):
			t.Errorf("first line %s", raw)
		case i == len(lines)-1:
			if l.Type != "end" || !l.Complete || l.SHA256 != hex.EncodeToString(h.Sum(nil)) {
				t.Errorf("last line %s", raw)
			}
		case i > 0 && l.Type != "item":
			t.Errorf("line %s", raw)
		case l.Outcome == "moved":
			if l.Verified != "full" || l.Source == nil || l.Target == nil {
				t.Errorf("nothing is proven by %s", raw)
				continue
			}
			a, b := *l.Source, *l.Target
			ok := a.SHA256 == b.SHA256 && a.SHA256 != "" && (a.Alarm == nil) == (b.Alarm == nil) && (a.Alarm == nil || *a.Alarm == *b.Alarm)
			if l.Kind == "do" && b.SHA256 == "" { // a file that got a table of alarms
				ok = a.Content == b.Content && a.Content != ""
			}
			if l.Kind == "d1" {
				ok = len(a.Tables) > 0
			}
			if l.Kind == "queue" {
				ok = len(a.Queues) > 0 && len(a.Queues) == len(b.Queues)
			}
			if !ok {
				t.Errorf("the sides differ in %s", raw)
			}
		}
		h.Write(raw)
	}
}
