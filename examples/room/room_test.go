package room

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable/durabletest"
)

// hear reads frames until ok says that they are enough, and returns the texts of
// the messages and the members last told.
func hear(t *testing.T, s *durabletest.Socket, ok func(texts string, members string) bool) {
	t.Helper()
	var texts []string
	var members string
	for !ok(strings.Join(texts, " "), members) {
		m, err := s.Receive()
		if err != nil {
			t.Fatalf("heard %v, members %s: %v", texts, members, err)
		}
		var f frame
		if err := json.Unmarshal(m.Data, &f); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.Messages {
			texts = append(texts, m.Name+":"+m.Text)
		}
		if f.Members != nil {
			members = strings.Join(f.Members, ",")
		}
	}
}

func said(want string) func(string, string) bool {
	return func(texts, _ string) bool { return texts == want }
}

func here(want string) func(string, string) bool {
	return func(_, members string) bool { return members == want }
}

func say(s *durabletest.Socket, op, text string) {
	s.Send(fmt.Sprintf(`{"op":%q,"text":%q}`, op, text))
}

func TestMembersHearEachOther(t *testing.T) {
	h := durabletest.New(t, durabletest.Options{}, App)
	a := h.Dial("/lobby/socket?name=ada")
	hear(t, a, here("ada"))
	b := h.Dial("/lobby/socket?name=bob")
	hear(t, b, here("ada,bob"))
	hear(t, a, here("ada,bob"))
	say(a, "1", "hello")
	say(a, "1", "hello")          // once more: it does not know whether it was stored
	hear(t, a, said("ada:hello")) // messages of two sockets come in any order
	say(b, "2", "good morning")
	hear(t, a, said("bob:good morning"))
	hear(t, b, said("ada:hello bob:good morning"))

	// Who lost the connection comes again with what it has heard.
	h.Restart()
	again := h.Dial("/lobby/socket?name=bob&after=1")
	hear(t, again, said("bob:good morning"))
	b.WantClose(1001)
}

func TestMembersOfAnotherReplica(t *testing.T) {
	h := durabletest.New(t, durabletest.Options{}, App)
	other := h.Join()
	a, b := h.Dial("/lobby/socket?name=ada"), other.Dial("/lobby/socket?name=bob")
	say(a, "1", "hello")
	hear(t, b, said("ada:hello"))
	hear(t, a, here("ada,bob"))
}

// A member of whom nothing is heard is let go by the alarm; one who shows life
// stays.
func TestPresenceExpires(t *testing.T) {
	h := durabletest.New(t, durabletest.Options{Settings: map[string]any{"presence_seconds": 1}}, App)
	hear(t, h.Dial("/lobby/socket?name=ada"), here("ada"))
	b := h.Dial("/lobby/socket?name=bob")
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
				b.Send("")
			}
		}
	}()
	hear(t, b, here("bob"))
	close(done)
	<-ended
}

func TestSearch(t *testing.T) {
	h := durabletest.New(t, durabletest.Options{}, App)
	for i, text := range []string{"a quick fox", "a slow hare", `the "fox" AND the hare`} {
		if a := h.Do("POST", "/lobby/messages", fmt.Sprintf(`{"op":"%d","name":"ada","text":%q}`, i, text)); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for q, want := range map[string]string{"fox": "3 1", "quick": "1", "fox+hare": "3", "%22": "", "AND": "3", "NOT+fox": "", "": ""} {
		a := h.Do("GET", "/lobby/search?q="+q, "")
		var list []message
		if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != http.StatusOK {
			t.Errorf("%s: %d %s", q, a.Status, a.Body)
		}
		var seqs []string
		for _, m := range list {
			seqs = append(seqs, fmt.Sprint(m.Seq))
		}
		if got := strings.Join(seqs, " "); got != want {
			t.Errorf("%s finds %q, want %q", q, got, want)
		}
	}
	for _, bad := range []string{`{`, `{"name":"ada","text":"no op"}`, `{"op":"x","text":"no name"}`} {
		if a := h.Do("POST", "/lobby/messages", bad); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", bad, a.Status)
		}
	}
}

func TestFiles(t *testing.T) {
	h := durabletest.New(t, durabletest.Options{Settings: map[string]any{"max_file": 10}}, App)
	for range 2 { // repeated after a lost answer
		if a := h.Do("PUT", "/lobby/files/1/a%20b.txt", "body"); a.Status != http.StatusNoContent {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	a := h.Do("GET", "/lobby/files/1/a%20b.txt", "")
	if a.Body != "body" || a.Header.Get("Content-Disposition") != `attachment; filename="a b.txt"` || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%d %q %v", a.Status, a.Body, a.Header)
	}
	for path, want := range map[string]int{"/other/files/1/a%20b.txt": 404, "/lobby/files/2/x": 404, "/lobby/": 200, "/lobby/page.js": 200, "/": 303, "/lobby/nothing": 404} {
		if a := h.Do("GET", path, ""); a.Status != want {
			t.Errorf("%s: %d, want %d", path, a.Status, want)
		}
	}
	if a := h.Do("PUT", "/lobby/files/3/x", "more than ten bytes"); a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large file: %d", a.Status)
	}
	r, err := http.NewRequestWithContext(t.Context(), "PUT", h.URL()+"/lobby/files/4/x", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://elsewhere.example")
	if a := h.Send(r); a.Status != http.StatusForbidden {
		t.Errorf("a page of another site: %d", a.Status)
	}
}
