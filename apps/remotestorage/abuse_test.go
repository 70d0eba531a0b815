package remotestorage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestGuessesAtOnce: guesses that are under way are counted, so that many at a
// time are not more than one after the other; and passwords that were right are
// not.
func TestGuessesAtOnce(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	a := newAccounts(f.env)
	for range 2 * maxFailures["client"] {
		if _, err := a.login(t.Context(), "alice", password, "192.0.2.7"); err != nil {
			t.Fatal(err)
		}
	}
	guess := func(n int, client func(i int) string) (tried int64) {
		var sum atomic.Int64
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, err := a.login(t.Context(), "alice", "a guess", client(i))
				switch _, many := errors.AsType[tooManyError](err); {
				case errors.Is(err, errWrongPassword):
					sum.Add(1)
				case !many:
					t.Error(err)
				}
			})
		}
		all.Wait()
		return sum.Load()
	}
	if n := guess(100, func(int) string { return "192.0.2.1" }); n != maxFailures["client"] {
		t.Errorf("%d guesses of a client, want %d", n, maxFailures["client"])
	}
	// What a client may not try does not lock the owner out.
	if _, err := a.login(t.Context(), "alice", password, "192.0.2.7"); err != nil {
		t.Errorf("the owner, elsewhere: %v", err)
	}
	left := maxFailures["name"] - maxFailures["client"]
	if n := guess(100, func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }); n != left {
		t.Errorf("%d guesses of a name, want %d", n, left)
	}
	// Nor does a name that may not be tried use up a client's tries.
	var many tooManyError
	for range 2 * maxFailures["client"] {
		if _, err := a.login(t.Context(), "alice", password, "192.0.2.8"); !errors.As(err, &many) || many.wait < 1 || many.wait > int(attemptWindow/time.Second)+1 {
			t.Fatalf("a name that is not to be tried: %v", err)
		}
	}
	if _, err := a.login(t.Context(), "bob", "a guess", "192.0.2.8"); !errors.Is(err, errWrongPassword) {
		t.Errorf("another name: %v", err)
	}
}

// TestOldPassword: who has signed in with a password that has been changed
// meanwhile gets no session.
func TestOldPassword(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	a := newAccounts(f.env)
	old, err := a.login(t.Context(), "alice", password, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	now, err := a.setPassword(t.Context(), old, "another password")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.session(t.Context(), old, time.Hour); !errors.Is(err, errNoAccount) {
		t.Errorf("a session by the old password: %v", err)
	}
	secret, err := a.session(t.Context(), now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if acc, err := a.whose(t.Context(), secret); err != nil || acc.name != "alice" {
		t.Errorf("%v, %v", acc, err)
	}
}

// TestNoAccountLooksTheSame: the store does not tell which accounts there are.
func TestNoAccountLooksTheSame(t *testing.T) {
	f := newFixture(t, nil)
	f.account("alice")
	f.user("alice", "m:rw").put("/public/m/x", "x")
	look := func(name, token, method, path string) string {
		body := ""
		if method == "PUT" {
			body = "text"
		}
		a := user{f, name, token}.do(method, path, body)
		var lines []string
		for name, v := range a.header {
			if name == "Date" || name == "X-Request-Id" {
				v = []string{"..."} // of each request
			}
			lines = append(lines, fmt.Sprint(name, v))
		}
		slices.Sort(lines)
		return fmt.Sprint(a.status, "\n", strings.Join(lines, "\n"), "\n", a.body)
	}
	for _, c := range [][3]string{
		{"", "GET", "/public/m/none"}, {"", "HEAD", "/public/m/none"}, {"guess", "GET", "/m/x"}, {"guess", "GET", "/public/m/x"}, {"guess", "PUT", "/m/x"},
		{"guess", "DELETE", "/m/x"}, {"guess", "GET", "/m/"}, {"", "GET", "/m/x"}, {"", "GET", "/"}, {"", "PUT", "/public/m/x"},
	} {
		there, none := look("alice", c[0], c[1], c[2]), look("nobody", c[0], c[1], c[2])
		if there != none {
			t.Errorf("%v: an account\n%s\nno account\n%s", c, there, none)
		}
	}
}

// TestManyRanges: one request does not become thousands to the bucket.
func TestManyRanges(t *testing.T) {
	f := newFixture(t, map[string]any{"inline_limit": 100})
	f.account("alice")
	u := f.user("alice", "m:rw")
	body := text64(6400)
	u.put("/public/m/large", body)
	before := f.bucket.count("get")
	ranges := make([]string, 1000)
	for i := range ranges {
		ranges[i] = fmt.Sprintf("%d-%d", 5*i, 5*i)
	}
	a := f.anonymous("alice").get("/public/m/large", "Range", "bytes="+strings.Join(ranges, ","))
	if a.status != 200 || a.body != body {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
	if n := f.bucket.count("get") - before; n != 1 {
		t.Errorf("%d requests to the bucket", n)
	}
	a = u.get("/public/m/large", "Range", "bytes="+strings.Join(ranges[:maxRanges], ","))
	if a.status != 206 {
		t.Errorf("a few ranges: %d", a.status)
	}
}

type slowReader struct{ wait time.Duration }

func (r *slowReader) Read(p []byte) (int, error) {
	time.Sleep(r.wait)
	return len(p), nil
}

// TestStandstill: a body stands still when its client sends nothing, and not when
// the bucket takes its time with what has come.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		client := &slowReader{}
		b := &putBody{Reader: client, stall: newStall(func(at time.Time) error {
			cut.Store(!at.IsZero())
			return nil
		})}
		read := func(wait time.Duration) bool {
			client.wait = wait
			if _, err := b.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return cut.Load()
		}
		for range 3 {
			if time.Sleep(2 * standstill); read(standstill - time.Second) {
				t.Error("cut while the bucket was slow")
			}
		}
		if !read(standstill + time.Second) {
			t.Error("not cut while nothing came")
		}
		b.stall.stop()
	})
}

// TestQuotaOfAStream: of a body whose size nobody has told the bucket gets no more
// than there is room for.
func TestQuotaOfAStream(t *testing.T) {
	f := newFixture(t, map[string]any{"quota": 1000, "inline_limit": 100})
	f.account("alice")
	u := f.user("alice", "m:rw")
	u.put("/m/x", text64(160))
	var most atomic.Int64
	f.bucket.setFault(func(op, key string) error {
		if op == "put done" {
			info, err := f.env.Bucket(bucketName).Head(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			most.Store(max(most.Load(), info.Size))
		}
		return nil
	})
	chunked := func(path string, n int) answer {
		return f.send("PUT", "/rs/store/alice"+path, io.MultiReader(strings.NewReader(text64(n))), u.with(nil)...)
	}
	wants(t, "too much", chunked("/m/y", 160_000), 507)
	if n := most.Load(); n > 1000 {
		t.Errorf("the bucket got %d bytes", n)
	}
	wants(t, "all that there is room for", chunked("/m/y", 832), 201)
	wants(t, "in the place of another", chunked("/m/x", 160), 200)
	f.orphansGo("alice", 2)
}
