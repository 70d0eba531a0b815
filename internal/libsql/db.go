package libsql

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
)

// Limits and defaults.
const (
	defaultTimeout  = 5 * time.Second
	defaultMaxConns = 16
	// answerLimit bounds what one batch returns, in bytes of its JSON form. It
	// is what sqld allows by default; a file keeps to it too, so that a program
	// does not first meet it in production.
	answerLimit = 10_000_000
)

// A Config names a database.
type Config struct {
	// URL is file:PATH, or the address of a server that speaks Hrana over
	// HTTP: http, https, or libsql, which is https. It holds no credentials
	// and no parameters.
	URL string
	// Token is the bearer token, if the server wants one.
	Token string
	// Namespace is the database of the server, or "" for its default.
	Namespace string
	// CA is a PEM file of certificates to trust besides the system's.
	CA string
	// Timeout bounds each Batch, and of a Stream each wait for more rows; 0
	// means 5 s.
	Timeout time.Duration
	// MaxConns bounds the connections, of a file those for reading; 0 means
	// 16.
	MaxConns int
	// Observe, when not nil, is called after each round trip with the time that
	// it took, of a Stream that until its first row, and its error. It must not
	// wait.
	Observe func(took time.Duration, err error)
}

// WithDefaults returns the configuration with what zero stands for.
func (c Config) WithDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	return c
}

// A DB is one database. It is safe for concurrent use.
type DB struct {
	backend backend
	addr    string
	local   bool
	timeout time.Duration
	observe func(took time.Duration, err error)
	trips   atomic.Int64

	mu       sync.Mutex
	closed   bool
	underWay sync.WaitGroup
}

// A backend runs what DB has checked. Its errors are of type *Error, without
// the address. Calls of close come after all others have returned.
type backend interface {
	batch(ctx context.Context, mode Mode, stmts []Statement) ([]Result, error)
	// stream calls head, unless it is nil, with the columns, and then yield for
	// every row until it returns false.
	stream(ctx context.Context, stmt Statement, head func([]string), yield func(Row) bool) error
	close() error
}

// Open checks the configuration. A server is first spoken to by the first
// call; for a file the folders above it are created.
func Open(cfg Config) (*DB, error) {
	a, err := parseAddress(cfg.URL)
	if err != nil {
		return nil, err
	}
	return open(a, cfg)
}

// OpenFile opens a file whose path, unlike that in a URL, may be any. URL is not
// used.
func OpenFile(path string, cfg Config) (*DB, error) { return open(address{path: path}, cfg) }

func open(a address, cfg Config) (*DB, error) {
	cfg = cfg.WithDefaults()
	if cfg.Timeout < 0 || cfg.MaxConns < 0 {
		return nil, errors.New("database: a negative timeout or number of connections")
	}
	db := &DB{addr: a.String(), local: a.path != "", timeout: cfg.Timeout, observe: cfg.Observe}
	if db.observe == nil {
		db.observe = func(time.Duration, error) {}
	}
	var err error
	if db.local {
		db.backend, err = openFile(a.path, cfg)
	} else {
		db.backend, err = openWire(a.url, cfg)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

// Batch runs the statements in one transaction and one round trip, and returns
// one result a statement. A Read batch must hold only statements that read. An
// error tells by OutcomeOf whether the batch was applied; of a Read batch there
// is never anything to apply.
func (db *DB) Batch(ctx context.Context, mode Mode, stmts ...Statement) ([]Result, error) {
	stmts, err := checkStatements(stmts)
	if err != nil {
		return nil, db.named(err)
	}
	if err := db.enter(ctx); err != nil {
		return nil, db.named(err)
	}
	defer db.underWay.Done()
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	sent := clock.Now()
	results, err := db.backend.batch(ctx, mode, stmts)
	db.observe(clock.Since(sent), err)
	if err != nil {
		return nil, db.named(err)
	}
	return results, nil
}

// Stream returns the rows of one reading statement, all from one snapshot of
// the primary, in constant memory. An error ends the sequence. The rows belong
// to the caller. Over the wire it needs a server that speaks version 3 of the
// protocol, and a token that may write.
func (db *DB) Stream(ctx context.Context, stmt Statement) iter.Seq2[Row, error] {
	return db.StreamRows(ctx, stmt, nil)
}

// StreamRows is [DB.Stream] with the names of the columns: head is called with
// them once before the first row.
func (db *DB) StreamRows(ctx context.Context, stmt Statement, head func(columns []string)) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		stmts, err := checkStatements([]Statement{stmt})
		if err == nil {
			err = db.enter(ctx)
		}
		if err != nil {
			yield(nil, db.named(err))
			return
		}
		defer db.underWay.Done()
		// A consumer that breaks off also ends what waits for the context.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		sent := clock.Now()
		took := sync.OnceValue(func() time.Duration { return clock.Since(sent) })
		err = db.backend.stream(ctx, stmts[0], head, func(row Row) bool {
			took()
			return yield(row, nil)
		})
		db.observe(took(), err)
		if err != nil {
			yield(nil, db.named(err))
		}
	}
}

// Local reports whether the database is a file.
func (db *DB) Local() bool { return db.local }

// String returns the address, without secrets.
func (db *DB) String() string { return db.addr }

// Trips returns the number of round trips so far: requests to a server, or
// transactions on a file.
func (db *DB) Trips() int64 { return db.trips.Load() }

// Close waits for what is under way and closes all connections. Later calls
// are refused.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	db.mu.Unlock()
	db.underWay.Wait()
	return db.backend.close()
}

// enter begins a call, which is one round trip.
func (db *DB) enter(ctx context.Context) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return refused(KindUnreachable, errors.New("closed"))
	}
	if err := ctx.Err(); err != nil {
		return refused(KindTimeout, err)
	}
	db.underWay.Add(1)
	db.trips.Add(1)
	countTrip(ctx)
	return nil
}

// named adds the address to an error of this package.
func (db *DB) named(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Addr = db.addr
		return e
	}
	return &Error{Outcome: Unknown, Kind: KindSQL, Statement: -1, Addr: db.addr, Err: err}
}
