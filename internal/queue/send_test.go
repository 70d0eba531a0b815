package queue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

func TestEncode(t *testing.T) {
	type pair struct {
		A string          `json:"a"`
		R json.RawMessage `json:"r"`
	}
	for want, body := range map[string]any{
		`9007199254740993`:          json.RawMessage(" 9007199254740993\n"),
		`{"a":"<&>","r":1.10}`:      pair{"<&>", json.RawMessage(`1.10`)},
		`"é\u00e9` + "\u2028" + `"`: json.RawMessage(`"é\u00e9` + "\u2028" + `"`),
		`null`:                      nil,
		`{"b":1,"a":[1,2],"b":2}`:   json.RawMessage(`{"b": 1, "a": [1, 2], "b": 2}`),
	} {
		m, err := Encode("q", []any{body}, durable.SendOptions{Delay: 1500 * time.Millisecond})
		if err != nil || len(m) != 1 || string(m[0].Body) != want || m[0].Queue != "q" || m[0].DelayMs != 1500 || len(m[0].ID) != 36 {
			t.Errorf("%s: %+v %v", want, m, err)
		}
	}
	if m, err := Encode("q", []any{strings.Repeat("a", MaxBody-2), json.RawMessage(strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth))}, durable.SendOptions{}); err != nil || m[0].ID >= m[1].ID {
		t.Errorf("the largest bodies: %v", err)
	}
	for name, c := range map[string]struct {
		queue string
		body  any
		delay time.Duration
		is    error
	}{
		"large":      {"q", strings.Repeat("a", MaxBody-1), 0, durable.ErrTooLarge},
		"not JSON":   {"q", json.RawMessage(`{`), 0, durable.ErrInvalid},
		"empty":      {"q", json.RawMessage(nil), 0, durable.ErrInvalid},
		"not UTF-8":  {"q", json.RawMessage("\"\xff\""), 0, durable.ErrInvalid},
		"a function": {"q", func() {}, 0, durable.ErrInvalid},
		"deep":       {"q", json.RawMessage(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)), 0, durable.ErrInvalid},
		"negative":   {"q", 1, -1, durable.ErrInvalid},
		"too late":   {"q", 1, MaxDelay + 1, durable.ErrInvalid},
		"no name":    {"", 1, 0, durable.ErrInvalid},
		"long name":  {strings.Repeat("q", MaxName+1), 1, 0, durable.ErrInvalid},
	} {
		if _, err := Encode(c.queue, []any{c.body}, durable.SendOptions{Delay: c.delay}); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddSend(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		var bodies []any
		for i := range 1000 {
			bodies = append(bodies, i)
		}
		msgs, err := Encode("q\x00é", bodies, durable.SendOptions{Delay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		exact := `{"big":123456789012345678901234567890,"f":1.10,"e":"\u00e9\/é<","d":-0,"x":1E+2}`
		more, err := Encode("other", []any{json.RawMessage(exact)}, durable.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p, before := kv.NewPlan(), f.db.Trips()
		AddSend(p, nil)
		AddSend(p, append(msgs, more...))
		v := f.commit(p)
		if f.db.Trips() != before+1 || len(v.Results) != 1 {
			t.Errorf("%d trips, %d statements", f.db.Trips()-before, len(v.Results))
		}
		n := 0
		for e, err := range f.s.List(t.Context(), kv.ListOptions{Prefix: tuple.Key{PrefixDue, "q\x00é"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if due, _ := e.Key[2].(float64); int64(due) != v.NowMs+hour && !near(int64(due), v.NowMs+hour) || e.Key[3] != msgs[n].ID || e.Stamp != v.Stamp || e.ExpiresAt != 0 {
				t.Fatalf("%d: %+v", n, e)
			}
			var got struct {
				Body     int   `json:"body"`
				Attempts *int  `json:"attempts"`
				SentAt   int64 `json:"sent_at"`
			}
			if err := json.Unmarshal(e.Value, &got); err != nil || got.Body != n || got.Attempts == nil || *got.Attempts != 0 || !near(got.SentAt, v.NowMs) {
				t.Fatalf("%d: %s", n, e.Value)
			}
			n++
		}
		if n != 1000 {
			t.Errorf("%d messages", n)
		}
		for e, err := range f.s.List(t.Context(), kv.ListOptions{Prefix: tuple.Key{PrefixDue, "other"}}) {
			if err != nil || !strings.HasPrefix(string(e.Value), `{"body":`+exact+`,"attempts":0,`) {
				t.Errorf("%s %v", e.Value, err)
			}
		}
	})
}

// A refused plan sends nothing, and large batches are several statements.
func TestAddSendGuarded(t *testing.T) {
	eachPlace(t, func(t *testing.T, f *fixture) {
		var bodies []any
		for range 20 {
			bodies = append(bodies, strings.Repeat(`"`, MaxBody/2-1))
		}
		msgs, err := Encode("q", bodies, durable.SendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p := kv.NewPlan().Require("0")
		AddSend(p, msgs)
		if v := f.commit(p); v.OK || f.number(`SELECT count(*) FROM kv`) != 0 {
			t.Error("a refused plan sent something")
		}
		p = kv.NewPlan()
		AddSend(p, msgs)
		if v := f.commit(p); !v.OK || len(v.Results) != 5 || f.number(`SELECT count(*) FROM kv WHERE json_valid(v)`) != 20 {
			t.Errorf("%v, %d statements", v.OK, len(v.Results))
		}
	})
}
