package lab

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

// fakeEnv hosts objects in memory. An event is one SQLite transaction, which a
// panic rolls back, as does a first event whose handler wrote nothing.
type fakeEnv struct {
	durable.Env
	t        *testing.T
	base     *url.URL
	loopback bool
	settings any
	bucket   durable.Bucket
	database durable.Database
	queue    durable.Queue

	mu      sync.Mutex
	objects map[string]*fakeObject // by class and id
}

func newFakeEnv(t *testing.T) *fakeEnv {
	return &fakeEnv{
		t: t, base: &url.URL{Scheme: "https", Host: "pods.example:8443", Path: "/lab"}, loopback: true,
		settings: &Settings{}, objects: map[string]*fakeObject{},
	}
}

func (e *fakeEnv) Settings() any        { return e.settings }
func (e *fakeEnv) BaseURL() *url.URL    { u := *e.base; return &u }
func (e *fakeEnv) Loopback() bool       { return e.loopback }
func (e *fakeEnv) Now() time.Time       { return time.Now() }
func (e *fakeEnv) Replica() string      { return "r1" }
func (e *fakeEnv) Version() string      { return "v0" }
func (e *fakeEnv) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Database returns a file, behind which a test may put another database.
func (e *fakeEnv) Database(name string) durable.Database {
	if name != databaseName {
		panic("no database " + name)
	}
	if e.database == nil {
		d, err := sqldb.Open(name, libsql.Config{URL: "file:" + filepath.Join(e.t.TempDir(), "lab.sqlite"), Timeout: time.Minute})
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { d.Close() })
		e.database = d
	}
	return e.database
}

// Queue returns what a test has put there.
func (e *fakeEnv) Queue(name string) durable.Queue {
	if name != queueName {
		panic("no queue " + name)
	}
	return e.queue
}

// Bucket returns a directory, behind which a test may put another bucket.
func (e *fakeEnv) Bucket(name string) durable.Bucket {
	if name != bucketName {
		panic("no bucket " + name)
	}
	if e.bucket == nil {
		b, err := dir.Open(e.t.TempDir())
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { b.Close() })
		e.bucket = b
	}
	return e.bucket
}

func (e *fakeEnv) Namespace(class string) durable.Namespace {
	if App().Classes[class] == nil {
		panic("no class " + class)
	}
	return fakeNamespace{e, class}
}

type fakeNamespace struct {
	env   *fakeEnv
	class string
}

func (fakeNamespace) ID(name string) durable.ID { return durable.IDFromName(name) }
func (fakeNamespace) UniqueID() durable.ID      { return durable.NewUniqueID() }
func (n fakeNamespace) Get(id durable.ID) durable.Stub {
	n.env.mu.Lock()
	defer n.env.mu.Unlock()
	key := n.class + "/" + id.String()
	o := n.env.objects[key]
	if o == nil {
		o = newFakeObject(n.env, n.class, id)
		n.env.objects[key] = o
	}
	return o
}

type fakeObject struct {
	env   *fakeEnv
	class durable.Class
	id    durable.ID

	mu     sync.Mutex
	conn   *sql.Conn
	exists bool
	dirty  bool // the event wrote something that was not rolled back
	seen   string
	panics []any
	alarm  time.Time // zero without one
	woken  int       // calls of WakeSockets
}

func newFakeObject(env *fakeEnv, class string, id durable.ID) *fakeObject {
	env.t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		env.t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		env.t.Fatal(err)
	}
	env.t.Cleanup(func() { conn.Close(); db.Close() })
	return &fakeObject{env: env, class: App().Classes[class], id: id, conn: conn}
}

func (o *fakeObject) ID() durable.ID { return o.id }

func (o *fakeObject) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	o.ServeHTTP(w, r)
	return w.Result(), nil
}

func (o *fakeObject) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exec("BEGIN")
	out := httptest.NewRecorder()
	if wrote := o.run(out, r); wrote {
		o.exec("COMMIT")
		o.exists = true
	} else {
		o.exec("ROLLBACK")
	}
	res := out.Result()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	io.Copy(w, res.Body)
}

func (o *fakeObject) run(w *httptest.ResponseRecorder, r *http.Request) (wrote bool) {
	defer func() {
		if v := recover(); v != nil {
			o.panics = append(o.panics, v)
			wrote = false
			*w = *httptest.NewRecorder()
			w.WriteHeader(http.StatusInternalServerError)
		}
	}()
	object, err := o.class(fakeState{o: o}, o.env)
	if err != nil {
		panic(err)
	}
	o.dirty, o.seen = false, o.counts()
	object.ServeHTTP(w, r)
	return o.dirty
}

// look notes whether a statement wrote something.
func (o *fakeObject) look() {
	seen := o.counts()
	o.dirty, o.seen = o.dirty || seen != o.seen, seen
}

// counts changes when rows or the schema do.
func (o *fakeObject) counts() (s string) {
	err := o.conn.QueryRowContext(context.Background(),
		`SELECT total_changes() || '/' || schema_version FROM pragma_schema_version`).Scan(&s)
	if err != nil {
		panic(err)
	}
	return s
}

func (o *fakeObject) exec(query string) {
	if _, err := o.conn.ExecContext(context.Background(), query); err != nil {
		o.env.t.Errorf("%s: %v", query, err)
	}
}

type fakeState struct {
	durable.State
	o *fakeObject
}

func (s fakeState) ID() durable.ID   { return s.o.id }
func (s fakeState) Now() time.Time   { return time.Now() }
func (s fakeState) SQL() durable.SQL { return fakeSQL{s.o, false} }

func (s fakeState) SetAlarmIn(d time.Duration) error {
	s.o.alarm, s.o.dirty = time.Now().Add(d), true
	return nil
}

// There are no sockets here: the tests of fleets have some.
func (s fakeState) Sockets() []durable.Socket { return nil }
func (s fakeState) WakeSockets() error        { s.o.woken++; return nil }

func (s fakeState) DeleteAlarm() error       { s.o.alarm = time.Time{}; return nil }
func (s fakeState) Alarm() (time.Time, bool) { return s.o.alarm, !s.o.alarm.IsZero() }

// fire runs the object's alarm.
func (o *fakeObject) fire(info durable.AlarmInfo) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.exec("BEGIN")
	o.alarm = time.Time{}
	object, err := o.class(fakeState{o: o}, o.env)
	if err == nil {
		err = object.(durable.Alarmer).Alarm(context.Background(), info)
	}
	if err != nil {
		o.exec("ROLLBACK")
		return err
	}
	o.exec("COMMIT")
	return nil
}

type fakeSQL struct {
	o    *fakeObject
	inTx bool
}

func (s fakeSQL) Exec(ctx context.Context, query string, args ...any) (durable.Result, error) {
	defer s.o.look()
	res, err := s.o.conn.ExecContext(ctx, query, args...)
	if err != nil {
		return durable.Result{}, err
	}
	changes, _ := res.RowsAffected()
	id, _ := res.LastInsertId()
	return durable.Result{Changes: changes, LastRowID: id}, nil
}

func (s fakeSQL) Query(ctx context.Context, query string, args ...any) iter.Seq2[durable.Row, error] {
	return func(yield func(durable.Row, error) bool) {
		defer s.o.look()
		rows, err := s.o.conn.QueryContext(ctx, query, args...)
		if err != nil {
			yield(durable.Row{}, err)
			return
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			yield(durable.Row{}, err)
			return
		}
		values, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range dest {
			dest[i] = &values[i]
		}
		for rows.Next() {
			err := rows.Scan(dest...)
			if !yield(durable.Row{Columns: columns, Values: values}, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(durable.Row{}, err)
		}
	}
}

func (s fakeSQL) Tx(ctx context.Context, fn func(durable.SQL) error) error {
	if s.inTx {
		return durable.ErrNested
	}
	dirty := s.o.dirty
	s.o.exec("SAVEPOINT tx")
	if err := fn(fakeSQL{s.o, true}); err != nil {
		s.o.exec("ROLLBACK TO tx")
		s.o.exec("RELEASE tx")
		s.o.dirty, s.o.seen = dirty, s.o.counts()
		return err
	}
	if _, err := s.o.conn.ExecContext(ctx, "RELEASE tx"); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// exists reports whether an event of the object has committed.
func (e *fakeEnv) exists(class, name string) bool {
	return e.object(class, name).exists
}

func (e *fakeEnv) object(class, name string) *fakeObject {
	return e.Namespace(class).Get(durable.IDFromName(name)).(*fakeObject)
}
