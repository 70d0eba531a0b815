package remotestorage

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
)

func TestMain(m *testing.M) {
	theHasher.memory = 64 // what a hash costs is not what tests are about
	goleak.VerifyTestMain(m)
}

// A fixture is the application on a replica in this process, with a clock that
// tests move and a bucket that they watch.
type fixture struct {
	t      *testing.T
	cfg    *config.Config
	public string // URL of the listener
	env    durable.Env
	vaults vaults
	shift  atomic.Int64 // by which the Vaults' clock is ahead
	bucket *watchedBucket
	log    *syncBuffer
	// frozen is the time that front doors see, when it is not zero.
	frozen atomic.Int64
	// statements counts those that Vaults have run.
	statements atomic.Int64
}

// patience bounds every wait for something that should happen soon.
const patience = time.Minute

func newFixture(t *testing.T, settings map[string]any) *fixture {
	t.Helper()
	t.Parallel() // all have stores of their own
	cfg, err := config.Load(config.Options{WorkDir: t.TempDir(), Environ: []string{}, Flags: map[string]any{
		"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "drain.grace": "0s", "data_dir": filepath.Join(t.TempDir(), "data"),
		"fleet.poll_interval": "50ms", "lease.waiters": 1000, "lease.acquire_timeout": "30s", "event.timeout": "1m",
	}})
	if err != nil {
		t.Fatal(err)
	}
	bind(cfg, settings)
	f := &fixture{t: t, cfg: cfg, log: &syncBuffer{}}
	app := f.app()
	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- host.Serve(ctx, host.ServeOptions{
			Config: cfg, Apps: []durable.App{app}, Version: "test", Log: slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelWarn})),
			Started: func(public, _ string) { started <- "http://" + public },
		})
	}()
	select {
	case f.public = <-started:
	case err := <-done:
		cancel()
		t.Fatalf("serve: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		client.CloseIdleConnections()
		if t.Failed() {
			t.Log(f.log.String())
		}
	})
	return f
}

// bind configures what the application requires, and mounts it at /rs.
func bind(cfg *config.Config, settings map[string]any) {
	cfg.Databases = []config.Database{{Name: databaseName}}
	cfg.Buckets = []config.Bucket{{Name: bucketName}}
	cfg.Caches = []config.Cache{{Name: cacheName, MaxEntries: 10000, TTL: time.Hour}}
	q := cfg.Queues[0]
	q.Name = queueName
	cfg.Queues, cfg.Crons = []config.Queue{q}, nil
	cfg.Mounts = []config.Mount{{Path: "/rs", App: "remotestorage", Settings: settings}}
}

// app is the application with the fixture's clock and bucket in it.
func (f *fixture) app() durable.App {
	app := App()
	app.New = func(env durable.Env) (http.Handler, error) {
		f.bucket = &watchedBucket{Bucket: env.Bucket(bucketName)}
		f.env, f.vaults = env, newVaults(env)
		return newFront(testEnv{env, f})
	}
	build := app.WellKnown["webfinger"]
	app.WellKnown = map[string]func(durable.Env) (http.Handler, error){"webfinger": func(env durable.Env) (http.Handler, error) {
		return build(testEnv{env, f})
	}}
	app.Classes = map[string]durable.Class{vaultClass: func(s durable.State, env durable.Env) (durable.Object, error) {
		o, err := newVault(shiftedState{s, f}, testEnv{env, f})
		if err != nil {
			return nil, err
		}
		return testVault{o.(*vault)}, nil
	}}
	return app
}

// testVault has one more call, which sets the alarm by the clock that a test has
// moved.
type testVault struct{ *vault }

func (v testVault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/call/wake" {
		v.vault.ServeHTTP(w, r)
		return
	}
	if err := v.setAlarm(r.Context()); err != nil {
		panic(err)
	}
}

type testEnv struct {
	durable.Env
	f *fixture
}

func (e testEnv) Now() time.Time {
	if at := e.f.frozen.Load(); at != 0 {
		return time.UnixMilli(at)
	}
	return e.Env.Now()
}

func (e testEnv) Bucket(name string) durable.Bucket {
	return &watchedBucket{Bucket: e.Env.Bucket(name), shared: e.f.bucket}
}

type shiftedState struct {
	durable.State
	f *fixture
}

func (s shiftedState) SQL() durable.SQL           { return countedSQL{s.State.SQL(), s.f} }
func (s shiftedState) by() time.Duration          { return time.Duration(s.f.shift.Load()) }
func (s shiftedState) Now() time.Time             { return s.State.Now().Add(s.by()) }
func (s shiftedState) SetAlarm(t time.Time) error { return s.State.SetAlarm(t.Add(-s.by())) }
func (s shiftedState) Alarm() (t time.Time, ok bool) {
	t, ok = s.State.Alarm()
	return t.Add(s.by()), ok
}

type countedSQL struct {
	durable.SQL
	f *fixture
}

func (s countedSQL) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	s.f.statements.Add(1)
	return s.SQL.Exec(ctx, query, args...)
}

func (s countedSQL) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	s.f.statements.Add(1)
	return s.SQL.Query(ctx, query, args...)
}

// placesEnv has a base URL and nothing else.
type placesEnv struct{ durable.Env }

func (placesEnv) BaseURL() *url.URL {
	return &url.URL{Scheme: "https", Host: "people.example", Path: "/rs"}
}

// watchedBucket counts calls, and fails those that a test wants to fail.
type watchedBucket struct {
	durable.Bucket
	shared *watchedBucket // the fixture's, nil in itself

	mu    sync.Mutex
	calls map[string]int
	fault func(op, key string) error
}

func (b *watchedBucket) act(op, key string) error {
	if b.shared != nil {
		b = b.shared
	}
	b.mu.Lock()
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[op]++
	fault := b.fault
	b.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op, key)
}

func (b *watchedBucket) setFault(f func(op, key string) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

func (b *watchedBucket) count(op string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[op]
}

// Put may fail after the body is there, as a lost answer does.
func (b *watchedBucket) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if err := b.act("put", key); err != nil {
		return durable.ObjectInfo{}, err
	}
	info, err := b.Bucket.Put(ctx, key, body, opts)
	if err == nil {
		err = b.act("put done", key)
	}
	return info, err
}

func (b *watchedBucket) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	if err := b.act("get", key); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	return b.Bucket.Get(ctx, key, opts)
}

func (b *watchedBucket) Delete(ctx context.Context, key string) error {
	if err := b.act("delete", key); err != nil {
		return err
	}
	return b.Bucket.Delete(ctx, key)
}

// keys lists the bodies in the bucket.
func (f *fixture) keys() (keys []string) {
	f.t.Helper()
	page, err := f.env.Bucket(bucketName).List(context.Background(), durable.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range page.Objects {
		keys = append(keys, o.Key)
	}
	return keys
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       5 * time.Minute,
}

// An answer is what became of a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) etag() string { return a.header.Get("ETag") }

// send sends a request to a raw path of the listener. Headers are names and
// values.
func (f *fixture) send(method, path string, body io.Reader, header ...string) answer {
	f.t.Helper()
	a, err := f.trySend(method, path, body, header...)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (f *fixture) trySend(method, path string, body io.Reader, header ...string) (answer, error) {
	r, err := http.NewRequestWithContext(context.Background(), method, f.public+path, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		} else {
			r.Header.Add(header[i], header[i+1])
		}
	}
	resp, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(b)}, err
}

const password = "correct horse"

// account makes an account.
func (f *fixture) account(name string) {
	f.t.Helper()
	a := newAccounts(f.env)
	if err := a.create(context.Background(), f.vaults, name, password, f.env.Settings().(*Settings).Quota); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) vaultID(name string) durable.ID {
	f.t.Helper()
	id, err := newAccounts(f.env).vault(context.Background(), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// call makes a call to an account's Vault.
func (f *fixture) call(name, call string, in, out any) {
	f.t.Helper()
	if err := f.vaults.call(context.Background(), f.vaultID(name), call, in, out); err != nil {
		f.t.Fatal(err)
	}
}

// wake sets the Vault's alarm anew, after the clock was moved.
func (f *fixture) wake(name string) { f.t.Helper(); f.call(name, "wake", none{}, nil) }

func (f *fixture) info(name string) (a infoAnswer) {
	f.t.Helper()
	f.call(name, "info", none{}, &a)
	return a
}

// A user is a client of one account with one token.
type user struct {
	f     *fixture
	name  string
	token string
}

// user lets a client in to an account.
func (f *fixture) user(name, scope string) user {
	f.t.Helper()
	var g grantAnswer
	f.call(name, "grant", grantRequest{Origin: "https://app.example", Scope: scope}, &g)
	return user{f, name, g.Token}
}

// anonymous is a client without a token.
func (f *fixture) anonymous(name string) user { return user{f, name, ""} }

// do sends a request to an escaped path of the store.
func (u user) do(method, path, body string, header ...string) answer {
	u.f.t.Helper()
	var r io.Reader
	if body != "" || method == http.MethodPut {
		r = strings.NewReader(body)
	}
	return u.f.send(method, "/rs/store/"+u.name+path, r, u.with(header)...)
}

func (u user) with(header []string) []string {
	if u.token != "" {
		header = append(header, "Authorization", "Bearer "+u.token)
	}
	return header
}

func (u user) get(path string, header ...string) answer {
	u.f.t.Helper()
	return u.do("GET", path, "", header...)
}

// put stores a text, which must succeed, and returns its entity tag.
func (u user) put(path, body string, header ...string) string {
	u.f.t.Helper()
	a := u.do("PUT", path, body, append(header, "Content-Type", "text/plain")...)
	if a.status != 200 && a.status != 201 || a.body != "" {
		u.f.t.Fatalf("PUT %s: %d %s", path, a.status, a.body)
	}
	return a.etag()
}

type listing struct {
	Context string          `json:"@context"`
	Items   map[string]item `json:"items"`
}

// list reads a folder and its entity tag.
func (u user) list(path string) (listing, string) {
	u.f.t.Helper()
	a := u.get(path)
	var l listing
	if err := json.Unmarshal([]byte(a.body), &l); err != nil || a.status != 200 || a.header.Get("Content-Type") != "application/ld+json" || l.Context != "http://remotestorage.io/spec/folder-description" {
		u.f.t.Fatalf("GET %s: %d %s", path, a.status, a.body)
	}
	return l, a.etag()
}

// wants checks the status of an answer.
func wants(t *testing.T, what string, a answer, status ...int) {
	t.Helper()
	for _, s := range status {
		if a.status == s {
			return
		}
	}
	t.Errorf("%s: %d %s, want %v", what, a.status, strings.TrimSpace(a.body), status)
}

func text64(n int) string { return strings.Repeat("0123456789abcdef", n/16) }
