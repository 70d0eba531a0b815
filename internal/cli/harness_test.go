package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/apps"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
)

// The test binary is the program itself for tests that need a process.
func TestMain(m *testing.M) {
	if os.Getenv("DWK_TEST_MAIN") != "" {
		Main(apps.All()...)
	}
	goleak.VerifyTestMain(m)
}

// A fixture is a store set and the environment that names it.
type fixture struct {
	t       *testing.T
	environ []string
	stores  *host.Stores // a second opening, for looking behind the commands
}

// newFixture is a store set in files that a replica has claimed.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + filepath.Join(t.TempDir(), "data")}}
	f.claim()
	return f
}

// newWireFixture is a store set behind a server.
func newWireFixture(t *testing.T) *fixture {
	t.Helper()
	s, err := hrana.New(hrana.Config{Path: filepath.Join(t.TempDir(), "hrana.db")})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + filepath.Join(t.TempDir(), "data"), "DWK_LIBSQL_URL=" + h.URL}}
	f.claim()
	return f
}

func (f *fixture) claim() {
	f.t.Helper()
	cfg, err := config.Load(config.Options{Environ: f.environ})
	if err != nil {
		f.t.Fatal(err)
	}
	if f.stores, err = host.Open(cfg); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.stores.Close() })
	if _, err := f.stores.Init(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// A result is what a command left.
type result struct {
	code     int
	out, err string
}

// ask runs a command for a person who is at a terminal and types input.
func (f *fixture) ask(input io.Reader, args ...string) result {
	f.t.Helper()
	return execute(f.t.Context(), Options{Args: args, In: input, Environ: f.environ, interactive: true})
}

func (f *fixture) run(args ...string) result {
	f.t.Helper()
	return execute(f.t.Context(), Options{Args: args, In: strings.NewReader(""), Environ: f.environ})
}

func execute(ctx context.Context, o Options) result {
	var out, err bytes.Buffer
	o.Out, o.Err, o.Apps = &out, &err, apps.All()
	code := Run(ctx, o)
	return result{code, out.String(), err.String()}
}

// ok runs a command that must succeed and returns its output.
func (f *fixture) ok(args ...string) string {
	f.t.Helper()
	r := f.run(args...)
	if r.code != 0 {
		f.t.Fatalf("dwk %s: exit %d: %s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

// json runs a command with -o json and decodes its answer.
func (f *fixture) json(into any, args ...string) {
	f.t.Helper()
	out := f.ok(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		f.t.Fatalf("dwk %s: %v in %s", strings.Join(args, " "), err, out)
	}
}

// fails runs a command that must exit with code, write nothing on stdout and
// one line on stderr, which mentions all of the words.
func (f *fixture) fails(code int, words string, args ...string) {
	f.t.Helper()
	f.failed(f.run(args...), code, words, args...)
}

func (f *fixture) failed(r result, code int, words string, args ...string) {
	f.t.Helper()
	if r.code != code || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasSuffix(r.err, "\n") {
		f.t.Errorf("dwk %s: exit %d, want %d; stdout %q, stderr %q", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	for word := range strings.SplitSeq(words, "|") {
		if !strings.Contains(r.err, word) {
			f.t.Errorf("dwk %s: %q does not mention %q", strings.Join(args, " "), r.err, word)
		}
	}
}

// hold takes the lease of an object for ttl.
func (f *fixture) hold(class, id, replica, event string, ttl time.Duration) lease.Info {
	f.t.Helper()
	plan := kv.NewPlan()
	show, err := lease.Attempt{
		Class: class, ID: id, Holder: "holder-of-" + replica, Replica: replica, Event: event, TTL: ttl, DeadlineMs: 1 << 60,
	}.Add(plan)
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := f.stores.KV.Commit(f.t.Context(), plan)
	if err != nil || !v.OK {
		f.t.Fatal(v.OK, err)
	}
	info, _, err := lease.Read(class, id, v.Results[show])
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// A lineSink hands over the lines of a stream as they are written.
type lineSink struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	lines chan string
}

func newLineSink() *lineSink { return &lineSink{lines: make(chan string, 1000)} }

func (s *lineSink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(b)
	for {
		i := bytes.IndexByte(s.buf.Bytes(), '\n')
		if i < 0 {
			return len(b), nil
		}
		s.lines <- string(s.buf.Next(i + 1))
	}
}

// next returns the next line that contains text.
func (s *lineSink) next(t *testing.T, text string) string {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case line := <-s.lines:
			if strings.Contains(line, text) {
				return line
			}
		case <-deadline:
			t.Fatalf("no line with %q was written", text)
		}
	}
}
