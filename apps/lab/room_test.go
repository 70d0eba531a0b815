package lab

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// heardBy returns the messages that a list has, as "seq:text".
func heardBy(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var list struct{ Messages []saidMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	var out []string
	for _, m := range list.Messages {
		if m.Replica != "r1" || m.At == 0 {
			t.Errorf("%+v", m)
		}
		out = append(out, fmt.Sprintf("%d:%s", m.Seq, m.Text))
	}
	return strings.Join(out, " ")
}

func TestRoomMessages(t *testing.T) {
	env, h := newLab(t)
	if got := heardBy(t, send(h, "GET", "/room/r/messages", "")); got != "" || env.exists("Room", "r") {
		t.Errorf("a room that nobody was in has %q", got)
	}
	want(t, send(h, "POST", "/room/r/messages", "one"), 200, `{"seq":1}`)
	want(t, send(h, "POST", "/room/r/messages", `{"op":"a","text":"two"}`), 200, `{"seq":2}`)
	want(t, send(h, "POST", "/room/r/messages", `{"op":"a","text":"again"}`), 200, `{"seq":2}`)
	want(t, send(h, "POST", "/room/r/messages", `{"text":"no op"}`), 200, `{"seq":3}`)
	if n := env.object("Room", "r").woken; n != 3 {
		t.Errorf("others were woken %d times, want once for each that was stored", n)
	}
	if got := heardBy(t, send(h, "GET", "/room/r/messages", "")); got != `1:one 2:two 3:{"text":"no op"}` {
		t.Error(got)
	}
	if got := heardBy(t, send(h, "GET", "/room/r/messages?after=2", "")); got != `3:{"text":"no op"}` {
		t.Error(got)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/room/r", "", 404}, {"GET", "/room/r/messages?after=x", "", 400}, {"GET", "/room/r/messages?after=-1", "", 400}, {"GET", "/room/r/messages?after=%zz", "", 400},
		{"POST", "/room/r/messages", strings.Repeat("x", maxSaid+1), 400}, {"POST", "/room/r/messages", "\xff", 400}, {"DELETE", "/room/r/messages", "", 405}, {"POST", "/room/r/socket", "", 405},
	} {
		if w := send(h, c.method, c.path, c.body); w.Code != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, w.Code, w.Body, c.status)
		}
	}
}

func TestMove(t *testing.T) {
	_, h := newLab(t)
	for range 2 { // an op is moved once
		want(t, send(h, "POST", "/counter/a/move?to=b&n=5&op=x", ""), 200, `{"name":"a","value":-5}`)
	}
	want(t, send(h, "POST", "/counter/a/move?to=c&n=9&op=x", ""), 200, `{"name":"a","value":-5}`) // whatever it asks for
	want(t, send(h, "GET", "/counter/b", ""), 200, `{"name":"b","value":5}`)
	want(t, send(h, "GET", "/counter/c", ""), 200, `{"name":"c","value":0}`)
	want(t, send(h, "GET", "/counter/a/moves", ""), 200, `{"name":"a","moves":[{"op":"x","to":"b","n":5,"done":true}]}`)
	for _, query := range []string{"to=b&n=1", "n=1&op=y", "to=a&n=1&op=y", "to=b&n=-1&op=y", "to=b&n=x&op=y", "to=%ff&n=1&op=y"} {
		if w := send(h, "POST", "/counter/a/move?"+query, ""); w.Code != 400 {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}
