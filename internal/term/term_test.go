package term

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func newTest(in string) (*Term, *bytes.Buffer, *bytes.Buffer) {
	var out, err bytes.Buffer
	return New(strings.NewReader(in), &out, &err, func(string) string { return "" }), &out, &err
}

func TestTable(t *testing.T) {
	tm, out, _ := newTest("")
	tb := NewTable("STORE", "ROWS", "NOTE", "STATE")
	tb.Row("coordination", 5, "", Cell{"ok", Good})
	tb.Row("日本", 1234, "x\x1b[31m\ny", Cell{"", Bad})
	if err := tm.Table(tb); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"STORE         ROWS  NOTE                STATE\n" +
		"coordination     5                      ok\n" +
		"日本          1234  x\\u001b[31m\\u000ay\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestFields(t *testing.T) {
	tm, out, _ := newTest("")
	tb := NewTable()
	tb.Row("holder", "a")
	tb.Row("age", 5)
	if err := tm.Table(tb); err != nil || out.String() != "holder  a\nage     5\n" {
		t.Errorf("%v %q", err, out)
	}
}

func TestColor(t *testing.T) {
	tm, out, _ := newTest("")
	tb := NewTable("A")
	tb.Row(Cell{"x", Bad})
	tm.color = true
	if err := tm.Table(tb); err != nil || !strings.Contains(out.String(), "\x1b[") {
		t.Errorf("no colour: %v %q", err, out)
	}
	out.Reset()
	tm.NoColor()
	if err := tm.Table(tb); err != nil || out.String() != "A\nx\n" {
		t.Errorf("colour: %v %q", err, out)
	}
}

func TestJSON(t *testing.T) {
	tm, out, _ := newTest("")
	if err := errors.Join(tm.WriteJSON(map[string]any{"a": "<&>"}), tm.WriteLine([]int{1, 2})); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"a\": \"<&>\"\n}\n[1,2]\n"; out.String() != want {
		t.Errorf("%q", out)
	}
	for n, want := range []string{"[]\n", "[\n  0\n]\n", "[\n  0,\n  1\n]\n"} {
		out.Reset()
		a := tm.Array()
		for i := range n {
			a.Add(i)
		}
		if err := a.Close(); err != nil || out.String() != want {
			t.Errorf("%v %q", err, out)
		}
	}
}

func TestConfirm(t *testing.T) {
	for in, want := range map[string]error{"y\n": nil, "YES\n": nil, "yes": nil, "n\n": ErrDeclined, "\n": ErrDeclined, "": ErrDeclined, "yep\n": ErrDeclined} {
		tm, out, stderr := newTest(in)
		if err := tm.Confirm(t.Context(), "Really?"); !errors.Is(err, ErrNotAsked) {
			t.Errorf("asked without a terminal: %v", err)
		}
		tm.Interactive = true
		if err := tm.Confirm(t.Context(), "Really %s?", "\x07"); !errors.Is(err, want) {
			t.Errorf("%q: %v", in, err)
		}
		if asked := strings.TrimSuffix(stderr.String(), "\n"); out.Len() > 0 || asked != `Really \u0007? [y/N] ` {
			t.Errorf("asked %q %q", out, stderr)
		}
	}
	r, w := io.Pipe()
	tm, _, _ := newTest("")
	tm.In, tm.Interactive = r, true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tm.Confirm(ctx, "?"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w.Close()
}

func TestNotes(t *testing.T) {
	tm, out, stderr := newTest("")
	tm.Notef("a %d", 1)
	tm.Quiet = true
	tm.Notef("b")
	tm.Clear()
	if out.Len() > 0 || stderr.String() != "a 1\n" {
		t.Errorf("%q %q", out, stderr)
	}
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{"abc": "abc", "abcde": "abcde", "abcdef": "abcd…", "äöüäö": "äöüäö", "äöüäöü": "äöüä…"} {
		if got := Cut(in, 5); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}
