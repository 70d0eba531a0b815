package durable

import (
	"context"
	"database/sql"
	"io"
	"iter"
	"time"
)

// A Database is a SQL database shared by the fleet, every query of which runs
// at its primary. It is not part of an object's commit: a call within an event
// first commits what the event wrote.
type Database interface {
	Exec(ctx context.Context, query string, args ...any) (Result, error)
	Query(ctx context.Context, query string, args ...any) iter.Seq2[Row, error]
	// First returns the first row, or sql.ErrNoRows.
	First(ctx context.Context, query string, args ...any) (Row, error)
	// Batch runs the statements in one transaction and one round trip: all or
	// none. There is one result a statement.
	Batch(ctx context.Context, statements ...Statement) ([]BatchResult, error)
	// DB is for libraries that speak database/sql.
	DB() *sql.DB
}

// A Statement is one SQL statement and its arguments.
type Statement struct {
	SQL  string
	Args []any
}

// A BatchResult is what one statement of a Batch returned.
type BatchResult struct {
	Result
	Rows []Row
}

// A Bucket stores bodies by key. It is read-after-write.
type Bucket interface {
	// Put streams body into the key. It never holds a whole body in memory.
	Put(ctx context.Context, key string, body io.Reader, opts PutOptions) (ObjectInfo, error)
	// Get returns the body from the range's start on. The caller closes it.
	Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, ObjectInfo, error)
	Head(ctx context.Context, key string) (ObjectInfo, error)
	// Delete removes the key; it is no error when there is none.
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, opts ListOptions) (Listing, error)
}

// PutOptions are the facts stored beside a body, and a condition.
type PutOptions struct {
	ContentType string
	Metadata    map[string]string
	// IfAbsent has Put fail with [ErrPrecondition] when the key exists.
	IfAbsent bool
}

// GetOptions choose a part of a body.
type GetOptions struct {
	Offset int64
	// Length is the number of bytes wanted; 0 means to the end.
	Length int64
}

// ListOptions choose what List returns.
type ListOptions struct {
	Prefix    string
	Delimiter string
	Cursor    string
	// Limit bounds the keys and prefixes of a page; 0 means 1,000.
	Limit int
}

// A Listing is one page of a bucket's keys, in order.
type Listing struct {
	Objects  []ObjectInfo
	Prefixes []string
	// Cursor continues the list; it is empty on the last page.
	Cursor string
}

// ObjectInfo describes a stored body.
type ObjectInfo struct {
	Key         string
	Size        int64
	ETag        string
	Uploaded    time.Time
	ContentType string
	Metadata    map[string]string
}

// A Queue takes messages. A send within an event takes effect with its commit.
type Queue interface {
	Send(ctx context.Context, body any, opts SendOptions) error
	SendBatch(ctx context.Context, bodies []any, opts SendOptions) error
}

// SendOptions delay a message, counted from its commit.
type SendOptions struct {
	Delay time.Duration
}

// A Cache keeps values on one replica, in memory, for a while. It decides
// nothing: it may be empty at any time.
type Cache interface {
	Get(key string) (value any, ok bool)
	Set(key string, value any, ttl time.Duration)
	Delete(key string)
}
