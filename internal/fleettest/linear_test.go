package fleettest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func answered(status int, body, tag string) Answer {
	h := http.Header{}
	if tag != "" {
		h.Set("ETag", tag)
	}
	switch status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusGatewayTimeout:
		h.Set("Dwk-Outcome", "unknown")
	}
	return Answer{Status: status, Header: h, Body: body}
}

// made makes calls of one client each, by when they were sent and answered.
type made struct {
	from, to int
	op       Op
	answer   Answer
}

func makeHistory(name string, list []listed, calls []made) *History {
	h := &History{Name: name, list: list}
	for i, c := range calls {
		h.record(call{client: i, op: c.op, from: time.Duration(c.from), to: time.Duration(c.to), answer: c.answer})
	}
	return h
}

func value(n int) Answer { return answered(200, fmt.Sprintf(`{"value":%d}`, n), "") }

// The check passes what may happen and finds what must not.
func TestCheckOfHistories(t *testing.T) {
	t.Parallel()
	add := func(id string) Op { return Op{Kind: "add", ID: id, N: 1} }
	read, get := Op{Kind: "read"}, Op{Kind: "get"}
	put := func(body string) Op { return Op{Kind: "put", Body: body} }
	tag := func(body string) string { return put(body).tag() }
	over := func(old, body string) Op { return Op{Kind: "put", Body: body, Match: tag(old)} }
	shows := func(body string) Answer { return answered(200, body, tag(body)) }
	unknown, refused, cut := answered(504, "", ""), answered(503, "", ""), Answer{Err: os.ErrClosed}
	a, b := listed{"a", 1, 1}, listed{"b", 1, 2}
	for _, c := range []struct {
		name  string
		wrong string // part of what is found, "" for nothing
		list  []listed
		calls []made
	}{
		{"counter: in order", "", []listed{a, b}, []made{{1, 2, add("a"), value(1)}, {3, 4, add("b"), value(2)}, {5, 6, read, value(2)}}},
		{"counter: at once", "", []listed{a, b}, []made{{1, 9, add("b"), value(2)}, {2, 8, add("a"), value(1)}, {3, 7, read, value(0)}}},
		{"counter: unknown, applied late", "", []listed{a, b}, []made{{1, 2, add("b"), cut}, {3, 4, add("a"), value(1)}, {5, 6, read, value(1)}, {7, 8, read, value(2)}}},
		{"counter: unknown, never applied", "", []listed{a}, []made{{1, 2, add("b"), unknown}, {3, 4, add("a"), value(1)}, {7, 8, read, value(1)}}},
		{"counter: refused", "", []listed{a}, []made{{1, 2, add("b"), refused}, {3, 4, add("a"), value(1)}}},
		{"counter: lost", "lost", []listed{a}, []made{{1, 2, add("a"), value(1)}, {3, 4, add("b"), value(2)}}},
		{"counter: lost and overwritten", "no order", []listed{a}, []made{{1, 2, add("b"), value(1)}, {3, 4, add("a"), value(1)}}},
		{"counter: twice", "doubled", []listed{a, {"a", 1, 2}}, []made{{1, 2, add("a"), value(1)}}},
		{"counter: refused and applied", "applied", []listed{a}, []made{{1, 2, add("a"), refused}}},
		{"counter: stale read", "no order", []listed{a}, []made{{1, 2, add("a"), value(1)}, {3, 4, read, value(0)}}},
		{"counter: seen and gone", "no order", nil, []made{{1, 2, add("a"), unknown}, {3, 4, read, value(1)}, {5, 6, read, value(0)}}},
		{"counter: before it was asked for", "no order", []listed{a, b}, []made{{1, 2, read, value(2)}, {3, 4, add("a"), value(1)}, {3, 4, add("b"), unknown}}},
		{"counter: the handler failed", "answered 500", nil, []made{{1, 2, add("a"), answered(500, "", "")}}},

		{"note: in order", "", nil, []made{{1, 2, get, answered(404, "", "")}, {3, 4, put("a"), answered(201, "", tag("a"))}, {5, 6, put("b"), answered(204, "", tag("b"))}, {7, 8, get, shows("b")}}},
		{"note: unknown, applied late", "", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), cut}, {5, 6, get, shows("a")}, {7, 8, get, shows("b")}}},
		{"note: unknown, never applied", "", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), unknown}, {5, 6, get, shows("a")}}},
		{"note: unknown, found by its condition", "", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), unknown}, {5, 6, over("b", "c"), answered(204, "", tag("c"))}}},
		{"note: unknown, with a condition that does not hold", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, over("x", "b"), unknown}, {5, 6, get, shows("b")}}},
		{"note: condition", "", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, over("a", "b"), answered(204, "", tag("b"))}, {5, 6, over("a", "c"), answered(412, "", tag("b"))}}},
		{"note: condition that held twice", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 9, over("a", "b"), answered(204, "", tag("b"))}, {4, 8, over("a", "c"), answered(204, "", tag("c"))}}},
		{"note: lost", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), answered(204, "", tag("b"))}, {5, 6, get, shows("a")}}},
		{"note: the first one lost", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), answered(201, "", tag("b"))}}},
		{"note: refused and applied", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), refused}, {5, 6, get, shows("b")}}},
		{"note: seen and gone", "no order", nil, []made{{1, 2, put("a"), answered(201, "", tag("a"))}, {3, 4, put("b"), unknown}, {5, 6, get, shows("b")}, {7, 8, get, shows("a")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind, _, _ := strings.Cut(c.name, ":")
			problems, _ := makeHistory(kind+"/x", c.list, c.calls).Check()
			text := strings.Join(problems, "; ")
			if (text == "") != (c.wrong == "") || !strings.Contains(text, c.wrong) {
				t.Errorf("found %q, want %q", text, c.wrong)
			}
			if _, path, drawn := strings.Cut(text, "drawn in "); drawn {
				if page, err := os.ReadFile(path); err != nil || !strings.Contains(string(page), "<html") {
					t.Errorf("the page: %v", err)
				}
				os.RemoveAll(path[:strings.LastIndex(path, "/")]) //nolint:errcheck // in the system's temporary directory
			}
		})
	}
}
