package chaos

import (
	"net/http"
	"testing"

	"github.com/davidwkeith/dwk/internal/fleettest"
)

var (
	yes     = fleettest.Answer{Status: http.StatusOK}
	refused = fleettest.Answer{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}}
	unknown = fleettest.Answer{Status: http.StatusGatewayTimeout, Header: http.Header{"Dwk-Outcome": {"unknown"}}}
	silence fleettest.Answer
	failed  = fleettest.Answer{Status: http.StatusInternalServerError}
)

// A checker that finds nothing wrong where something is would make every run
// worthless.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		a    fleettest.Answer
		n    int
		want string
	}{
		{"there", yes, 1, ""}, {"lost", yes, 0, "lost"}, {"doubled", yes, 2, "doubled"},
		{"refused", refused, 0, ""}, {"applied", refused, 1, "applied"},
		{"unknown", unknown, 0, ""}, {"unknown and there", unknown, 1, ""}, {"unknown and doubled", unknown, 2, "doubled"},
		{"no answer", silence, 1, ""}, {"failed", failed, 0, "answer"}, {"503 without a promise", fleettest.Answer{Status: 503}, 0, "answer"},
	} {
		if got := judge(c.a, c.n); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestJudgeMessage(t *testing.T) {
	first, second, other := delivery{Attempts: 1, ID: "a"}, delivery{Attempts: 2, ID: "a"}, delivery{Attempts: 1, ID: "b"}
	for _, c := range []struct {
		name  string
		m     ask
		a     fleettest.Answer
		there []delivery
		dead  int
		want  string
	}{
		{"delivered", ask{}, yes, []delivery{first}, 0, ""},
		{"delivered again", ask{}, yes, []delivery{first, second}, 0, ""},
		{"never delivered", ask{}, yes, nil, 0, "lost"},
		{"not delivered again after it had failed", ask{Fail: 1}, yes, []delivery{first}, 0, "lost"},
		{"not delivered again without acknowledgement", ask{Unacked: 1}, yes, []delivery{first}, 0, "lost"},
		{"delivered again after it had failed", ask{Fail: 1}, yes, []delivery{first, second}, 0, ""},
		{"a dead letter", ask{Fail: 1000}, yes, []delivery{first, second}, 1, ""},
		{"poison that is gone", ask{Fail: 1000}, yes, []delivery{first, second}, 0, "lost"},
		{"two messages", ask{}, yes, []delivery{first, other}, 0, "doubled"},
		{"refused and delivered", ask{}, refused, []delivery{first}, 0, "applied"},
		{"refused and a dead letter", ask{}, refused, nil, 1, "applied"},
		{"unknown", ask{}, unknown, nil, 0, ""},
	} {
		if got := judgeMessage(c.m, c.a, c.there, c.dead); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestJudgeAlarm(t *testing.T) {
	for _, c := range []struct {
		name    string
		last    fleettest.Answer
		firings int
		dead    bool
		want    string
	}{
		{"fired", yes, 1, false, ""}, {"lost", yes, 0, false, "lost"}, {"given up", yes, 0, true, ""},
		{"twice", yes, 2, false, "doubled"}, {"refused", refused, 1, false, "applied"}, {"unknown", unknown, 0, false, ""},
	} {
		if got := judgeAlarm(c.last, c.firings, c.dead); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestFileSaw(t *testing.T) {
	body := func(text string) fleettest.Answer { return fleettest.Answer{Status: http.StatusOK, Body: text} }
	gone := fleettest.Answer{Status: http.StatusNotFound}
	for _, c := range []struct {
		name string
		f    *file
		a    fleettest.Answer
		bad  bool
	}{
		{"what was put", &file{body: "a"}, body("a"), false},
		{"something else", &file{body: "a"}, body("b"), true},
		{"gone", &file{body: "a"}, gone, true},
		{"deleted", &file{}, gone, false},
		{"back again", &file{}, body("a"), true},
		{"in doubt", &file{body: "a", doubt: []string{"b"}}, body("b"), false},
		{"a delete in doubt", &file{body: "a", doubt: []string{absent}}, gone, false},
		{"not answered", &file{body: "a"}, refused, false},
	} {
		if c.f.saw(c.a); (len(c.f.wrong) > 0) != c.bad {
			t.Errorf("%s: %q", c.name, c.f.wrong)
		}
	}
}
