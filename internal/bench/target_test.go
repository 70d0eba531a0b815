package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestLab(t *testing.T) {
	seen := make(chan string, 100)
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			seen <- fmt.Sprintf("%s: %s %s %d", name, r.Method, r.URL, len(body))
			w.Header().Set("Dwk-Replica", name)
			switch {
			case strings.HasSuffix(r.URL.Path, "-9"):
				w.WriteHeader(http.StatusServiceUnavailable)
			case strings.HasSuffix(r.URL.Path, "-8"):
				panic(http.ErrAbortHandler)
			case strings.HasSuffix(r.URL.Path, "-7"):
				http.Redirect(w, r, "/", http.StatusFound)
			case r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "-1"):
				w.WriteHeader(http.StatusCreated)
			case r.Method == http.MethodPut:
				w.WriteHeader(http.StatusNoContent)
			}
		}))
		t.Cleanup(s.Close)
		return s.URL + "/lab"
	}
	lab, err := NewLab([]string{serve("a"), serve("b") + "/"}, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	for _, tt := range []struct {
		client int
		op     Op
		want   Answer
		asked  string
	}{
		{0, Op{Increment, 3}, Answer{true, "200", "a"}, "a: POST /lab/counter/bench-5-3/add 0"},
		{1, Op{CreateCounter, 3}, Answer{true, "200", "b"}, "b: POST /lab/counter/bench-5-3/add?n=0 0"},
		{2, Op{Read, 0}, Answer{true, "200", "a"}, "a: GET /lab/counter/bench-5-0 0"},
		{3, Op{WriteNote, 2}, Answer{true, "204", "b"}, "b: PUT /lab/note/bench-5-2 256"},
		{0, Op{CreateNote, 1}, Answer{true, "201", "a"}, "a: PUT /lab/note/bench-5-1 256"},
		{0, Op{Read, 9}, Answer{false, "503", "a"}, "a: GET /lab/counter/bench-5-9 0"},
		{0, Op{WriteNote, 8}, Answer{false, "connection lost", ""}, "a: PUT /lab/note/bench-5-8 256"},
		{0, Op{Read, 7}, Answer{false, "302", "a"}, "a: GET /lab/counter/bench-5-7 0"},
	} {
		got := lab.Do(t.Context(), tt.client, tt.op)
		if asked := <-seen; got != tt.want || asked != tt.asked {
			t.Errorf("%+v: %+v, asked %s", tt.op, got, asked)
		}
	}
	if len(seen) > 0 {
		t.Errorf("asked again: %s", <-seen)
	}
}

func TestLabWithoutAnswer(t *testing.T) {
	lab, err := NewLab([]string{"http://127.0.0.1:1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if a := lab.Do(t.Context(), 0, Op{Read, 0}); a != (Answer{Status: "connection refused"}) {
		t.Errorf("%+v", a)
	}
}

func TestLabURLs(t *testing.T) {
	for _, s := range []string{"", "localhost:8080/lab", "ftp://a/lab", "http:///lab", "http://a/lab?x=1", "http://a/lab#x", "http://u:p@a/lab", "http://a b"} {
		if _, err := NewLab([]string{"http://a/lab", s}, 1); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	if _, err := NewLab(nil, 1); err == nil {
		t.Error("no URL is taken")
	}
}

func openStore(t *testing.T, url string) (*libsql.DB, *kv.Store) {
	t.Helper()
	db, err := libsql.Open(libsql.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := kv.New(db)
	if err := s.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	return db, s
}

func TestEntriesLeaveNothing(t *testing.T) {
	_, s := openStore(t, "file:"+filepath.Join(t.TempDir(), "a.sqlite"))
	if _, err := s.Set(t.Context(), []any{"dwk_bench", "8", 1}, 1, 0); err != nil { // of another run
		t.Fatal(err)
	}
	e := Entries{s, 7}
	r, err := Run(t.Context(), Load{Mix: Commits, Objects: 250, Clients: 3, Requests: 300}, e)
	if err != nil || r.OK != 300 {
		t.Fatalf("%+v %v", r, err)
	}
	if err := Populate(t.Context(), Load{Mix: Commits, Objects: 250, Clients: 1}, e); err != nil {
		t.Fatal(err)
	}
	for i := range 250 {
		if a := e.Do(t.Context(), 0, Op{Commit, i}); !a.OK {
			t.Fatalf("%+v", a)
		}
	}
	for _, want := range []int{250, 0} {
		if n, err := e.Clean(t.Context()); n != want || err != nil {
			t.Errorf("%d removed, want %d, %v", n, want, err)
		}
	}
	var left []string
	for entry, err := range s.List(t.Context(), kv.ListOptions{}) {
		left = append(left, fmt.Sprint(entry.Key, err))
	}
	if len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

func TestEntriesSayWhy(t *testing.T) {
	db, s := openStore(t, "file:"+filepath.Join(t.TempDir(), "a.sqlite"))
	db.Close()
	if a := (Entries{s, 1}).Do(t.Context(), 0, Op{Commit, 0}); a.OK || a.Status != "unreachable" {
		t.Errorf("%+v", a)
	}
}

func TestForeign(t *testing.T) {
	db, _ := openStore(t, "file:"+filepath.Join(t.TempDir(), "a.sqlite"))
	add := func(class, id string, name, deleted any) {
		t.Helper()
		if _, err := db.Batch(t.Context(), libsql.Write, libsql.S(`INSERT INTO obj_head VALUES (?, ?, 1, '', '', 4096, 1, 1, ?, 0, 0, ?)`, class, id, name, deleted)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(n int64, names ...string) {
		t.Helper()
		got, some, err := Foreign(t.Context(), db)
		if err != nil || got != n || !slices.Equal(some, names) {
			t.Errorf("%d %v %v, want %d %v", got, some, err, n, names)
		}
	}
	add("Counter", "01", "bench-1-0", nil)
	add("Note", "02", "bench-99-1", nil)
	add("Pod", "03", "gone", 5)
	want(0)
	add("Pod", "04", "bench-1-0", nil)
	want(1, "Pod/bench-1-0")
	add("Counter", "05", nil, nil)
	add("Counter", "06", "Bench-1-0", nil)
	add("Note", "07", "mine", nil)
	want(4, "Counter/05", "Counter/Bench-1-0", "Note/mine")
	db.Close()
	if _, _, err := Foreign(t.Context(), db); err == nil {
		t.Error("a closed store holds nothing")
	}
}

func TestMeasureDisk(t *testing.T) {
	dir := t.TempDir()
	d, err := MeasureDisk(t.Context(), dir, time.Millisecond)
	if err != nil || d.Transactions < 1 || d.Elapsed < time.Millisecond || d.Rate() <= 0 {
		t.Errorf("%+v %v", d, err)
	}
	if sum := d.Add(d); sum.Rate() != d.Rate() {
		t.Errorf("%v and %v", sum.Rate(), d.Rate())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
	if _, err := MeasureDisk(t.Context(), filepath.Join(dir, "none"), 0); err == nil {
		t.Error("no directory, no error")
	}
}

func TestWireCounts(t *testing.T) {
	w, err := OpenWire(t.Context(), t.TempDir(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	db, s := openStore(t, w.URL)
	before, own := w.Trips(), db.Trips()
	r, err := Run(t.Context(), Load{Mix: Commits, Objects: 5, Clients: 2, Requests: 20}, Entries{s, 1})
	if err != nil || r.OK != 20 {
		t.Errorf("%+v %v", r, err)
	}
	if n := w.Trips() - before; n != db.Trips()-own || n < 20 {
		t.Errorf("%d round trips, the client counts %d", n, db.Trips()-own)
	}
	db.Close()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
