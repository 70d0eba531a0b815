// Package kv is the coordination store: ordered tuple keys, compare-and-set
// and TTL on two tables of one SQL database. Every operation is one round
// trip, and every comparison that decides something is made by the primary,
// with the primary's clock, inside the deciding statement.
package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// SQL fragments shared by everything that adds statements to a Plan.
const (
	// Now is the primary's clock in epoch milliseconds. Without round() one
	// value in fifty comes out one too small.
	Now = `CAST(round(unixepoch('subsec')*1000) AS INTEGER)`
	// OK guards a statement of a Plan: it is true when the Plan's verdict was.
	OK = `(SELECT ok FROM kv_meta WHERE id=0)=1`
	// Live tests a row of kv.
	Live = `(expires_at IS NULL OR expires_at > ` + Now + `)`
	// touchNothing is a write that changes no row. A read replica of the
	// primary passes a batch on to the primary for its sake.
	touchNothing = `UPDATE kv_meta SET ok=1 WHERE id=0 AND 0`
)

// KeyNum returns an SQL expression for the encoded number of expr, epoch
// milliseconds between the years 2004 and 2039.
func KeyNum(expr string) string {
	return `unhex('03'||printf('%016X', -4436045632959938560 + (((` + expr + `) - 1099511627776) << 12)))`
}

// ErrNoVerdict says that a batch ran without its verdict row: the store's
// tables are missing or damaged. Nothing was applied.
var ErrNoVerdict = errors.New("coordination store has no kv_meta row: not initialised, or damaged")

// DB is what the store needs of a database.
type DB interface {
	Batch(ctx context.Context, mode libsql.Mode, stmts ...libsql.Statement) ([]libsql.Result, error)
	Stream(ctx context.Context, stmt libsql.Statement) iter.Seq2[libsql.Row, error]
	// Local reports whether the database is a file of this machine: a read
	// transaction on it always sees the latest commit.
	Local() bool
	String() string
}

// Versionstamp numbers the commits that set anything, store-wide and rising.
// The zero Versionstamp asserts absence.
type Versionstamp int64

// String returns 20 digits.
func (v Versionstamp) String() string { return fmt.Sprintf("%020d", int64(v)) }

// An Entry is one live row.
type Entry struct {
	Key   tuple.Key
	Value json.RawMessage
	Stamp Versionstamp
	// ExpiresAt is epoch milliseconds by the primary's clock, or 0.
	ExpiresAt int64
}

// Store is the coordination store. It is safe for concurrent use.
type Store struct {
	db DB
	// offset is the primary's clock less this machine's, in milliseconds.
	offset atomic.Int64
	// guard is a condition of every plan, "" for none.
	guard     string
	guardArgs []any
}

// New returns a store on db. [Store.Init] creates what is missing.
func New(db DB) *Store { return &Store{db: db} }

// Guarded returns a store on the same database each of whose plans demands that
// an SQL condition holds, besides its own.
func (s *Store) Guarded(cond string, args ...any) *Store {
	g := &Store{db: s.db, guard: cond, guardArgs: args}
	g.offset.Store(s.offset.Load())
	return g
}

// String returns the database's address without secrets.
func (s *Store) String() string { return s.db.String() }

// Clock estimates the primary's time without a round trip. No promise rests on
// it.
func (s *Store) Clock() time.Time {
	return clock.Now().Add(time.Duration(s.offset.Load()) * time.Millisecond)
}

// Skew returns the estimate of the primary's clock less this machine's.
func (s *Store) Skew() time.Duration { return time.Duration(s.offset.Load()) * time.Millisecond }

// observe takes the primary's time from an answer to a batch sent at sent.
func (s *Store) observe(primaryMs int64, sent time.Time) {
	mid := sent.Add(clock.Since(sent) / 2)
	s.offset.Store(primaryMs - mid.UnixMilli())
}

// Schema are the statements that create the store's tables. They are
// idempotent.
var Schema = []string{
	`CREATE TABLE IF NOT EXISTS kv(k BLOB PRIMARY KEY, v TEXT NOT NULL, ver INTEGER NOT NULL, expires_at INTEGER)`,
	`CREATE TABLE IF NOT EXISTS kv_meta(id INTEGER PRIMARY KEY CHECK (id = 0), seq INTEGER NOT NULL, ok INTEGER NOT NULL)`,
	`INSERT INTO kv_meta(id, seq, ok) VALUES (0, 0, 0) ON CONFLICT(id) DO NOTHING`,
	`CREATE INDEX IF NOT EXISTS kv_expires ON kv(expires_at) WHERE expires_at IS NOT NULL`,
}

// Init creates the tables, and those of more, unless they are there.
func (s *Store) Init(ctx context.Context, more ...string) error {
	var stmts []libsql.Statement
	for _, q := range append(append([]string{}, Schema...), more...) {
		stmts = append(stmts, libsql.S(q))
	}
	if _, err := s.db.Batch(ctx, libsql.Write, stmts...); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return nil
}

// Decide runs reads that must be answered by the primary, in one round trip
// and from one snapshot, without a write to its disk.
func (s *Store) Decide(ctx context.Context, stmts ...libsql.Statement) ([]libsql.Result, error) {
	if s.db.Local() {
		return s.db.Batch(ctx, libsql.Read, stmts...)
	}
	res, err := s.db.Batch(ctx, libsql.Write, append([]libsql.Statement{libsql.S(touchNothing)}, stmts...)...)
	if err != nil {
		return nil, err
	}
	return res[1:], nil
}

// Write runs statements that guard themselves, without a verdict, in one write
// transaction at the primary and one round trip, and returns a result each and
// the primary's time. Without a row that changes it costs no write to a disk.
func (s *Store) Write(ctx context.Context, stmts ...libsql.Statement) ([]libsql.Result, time.Time, error) {
	all := make([]libsql.Statement, 0, len(stmts)+2)
	all = append(append(append(all, libsql.S(touchNothing)), stmts...), libsql.S(`SELECT `+Now))
	sent := clock.Now()
	res, err := s.db.Batch(ctx, libsql.Write, all...)
	if err != nil {
		return nil, time.Time{}, err
	}
	last := len(res) - 1
	ms, _ := res[last].Rows[0][0].(int64)
	s.observe(ms, sent)
	return res[1:last], time.UnixMilli(ms), nil
}

// Look runs reads on which nothing is decided, in one round trip and from one
// snapshot. Unlike [Store.Decide] it takes no write lock, however long they take,
// and may be answered by a read replica of the primary, from an older state.
func (s *Store) Look(ctx context.Context, stmts ...libsql.Statement) ([]libsql.Result, error) {
	return s.db.Batch(ctx, libsql.Read, stmts...)
}

// Now asks the primary for its time.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	sent := clock.Now()
	res, err := s.Decide(ctx, libsql.S(`SELECT `+Now))
	if err != nil {
		return time.Time{}, err
	}
	ms, _ := res[0].Rows[0][0].(int64)
	s.observe(ms, sent)
	return time.UnixMilli(ms), nil
}

// Get returns the live entry of key; ok is false without one.
func (s *Store) Get(ctx context.Context, key tuple.Key) (e Entry, ok bool, err error) {
	k, err := key.Encode()
	if err != nil {
		return Entry{}, false, err
	}
	res, err := s.Decide(ctx, libsql.S(`SELECT k, v, ver, expires_at FROM kv WHERE k = ? AND `+Live, k))
	if err != nil {
		return Entry{}, false, fmt.Errorf("get %s: %w", key, err)
	}
	if len(res[0].Rows) == 0 {
		return Entry{}, false, nil
	}
	e, err = entry(res[0].Rows[0])
	return e, err == nil, err
}

// Set stores value, which must be encodable as JSON, for ttl, or for ever when
// ttl is 0.
func (s *Store) Set(ctx context.Context, key tuple.Key, value any, ttl time.Duration) (Versionstamp, error) {
	p := NewPlan()
	if err := p.SetKey(key, value, ttl); err != nil {
		return 0, err
	}
	v, err := s.Commit(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("set %s: %w", key, err)
	}
	return v.Stamp, nil
}

// Delete removes key; it is no error when there is none.
func (s *Store) Delete(ctx context.Context, key tuple.Key) error {
	p := NewPlan()
	if err := p.DeleteKey(key); err != nil {
		return err
	}
	if _, err := s.Commit(ctx, p); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// Touch extends the live entry of key to ttl from now, its stamp unchanged,
// when it still has the stamp; ok tells whether it had.
func (s *Store) Touch(ctx context.Context, key tuple.Key, stamp Versionstamp, ttl time.Duration) (ok bool, err error) {
	k, err := key.Encode()
	if err != nil {
		return false, err
	}
	res, err := s.db.Batch(ctx, libsql.Write, libsql.S(
		`UPDATE kv SET expires_at = `+Now+` + ? WHERE k = ? AND ver = ? AND `+Live+` RETURNING 1`, ttl.Milliseconds(), k, int64(stamp)))
	if err != nil {
		return false, fmt.Errorf("touch %s: %w", key, err)
	}
	return len(res[0].Rows) == 1, nil
}

// SweepStatement removes at most limit expired entries; nothing is written when
// there are none.
func SweepStatement(limit int) libsql.Statement {
	return libsql.S(`DELETE FROM kv WHERE k IN (SELECT k FROM kv WHERE expires_at <= `+Now+` ORDER BY expires_at LIMIT ?)`, limit)
}

// Sweep removes at most limit expired entries and returns how many it did.
// Reads never return expired entries, swept or not.
func (s *Store) Sweep(ctx context.Context, limit int) (int, error) {
	res, err := s.db.Batch(ctx, libsql.Write, SweepStatement(limit))
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	return int(res[0].Changes), nil
}

// CountExpired returns how many expired entries await a sweep.
func (s *Store) CountExpired(ctx context.Context) (int64, error) {
	res, err := s.Decide(ctx, libsql.S(`SELECT count(*) FROM kv WHERE expires_at <= `+Now))
	if err != nil {
		return 0, fmt.Errorf("count expired: %w", err)
	}
	n, _ := res[0].Rows[0][0].(int64)
	return n, nil
}

func entry(row libsql.Row) (Entry, error) {
	k, _ := row[0].([]byte)
	key, err := tuple.Decode(k)
	if err != nil {
		return Entry{}, fmt.Errorf("key %x in the coordination store: %w", k, err)
	}
	v, _ := row[1].(string)
	ver, _ := row[2].(int64)
	exp, _ := row[3].(int64)
	return Entry{Key: key, Value: json.RawMessage(v), Stamp: Versionstamp(ver), ExpiresAt: exp}, nil
}
