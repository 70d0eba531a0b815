package durable

import (
	"context"
	"database/sql"
	"io"
	"iter"
	"time"
)

// A Database is a SQL database shared by the fleet, every statement of which
// runs at its primary: what one replica wrote, all see. It is not part of an
// object's commit: a call within an event first commits what the event wrote.
//
// Each call is one statement, a Batch several, and a transaction of its own:
// statements such as BEGIN and ATTACH are refused with [ErrInvalid]. Arguments
// are positional: nil, bool (stored as 0 or 1), integers, finite floats, string,
// []byte, time.Time (stored as text in UTC, RFC 3339) and driver.Valuer. Rows
// have nil, int64, float64, string and []byte as they are stored. Foreign keys
// are enforced.
//
// Errors: [*ConstraintError], [ErrInvalid], [ErrTooLarge] for more than 5 MiB
// of text, 8 MiB of arguments or 10 MB of rows, [ErrUnavailable] for what was
// not applied and may be repeated, [ErrUnknownOutcome] for what was sent and
// not answered; others are the database's own about the statement.
type Database interface {
	Exec(ctx context.Context, query string, args ...any) (Result, error)
	// Query runs one statement and yields its rows, which belong to the caller.
	// Those of a SELECT are read as they are used, from one moment of the
	// database, however many there are. The first error ends the sequence.
	Query(ctx context.Context, query string, args ...any) iter.Seq2[Row, error]
	// First returns the first row, or sql.ErrNoRows.
	First(ctx context.Context, query string, args ...any) (Row, error)
	// Batch runs the statements in one transaction and one round trip: all or
	// none. There is one result a statement. Without any nothing is done.
	Batch(ctx context.Context, statements ...Statement) ([]BatchResult, error)
	// DB is for libraries that speak database/sql, with transactions of several
	// round trips. It is the caller's to use and the host's to close.
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

// A Bucket stores bodies by key. It is read-after-write, and a body is never
// seen with the facts of another one. The configuration may make one read-only:
// Put and Delete fail with [ErrReadOnly] then.
//
// A key is UTF-8 of at most 1,024 bytes: segments separated by single slashes,
// none of them "." or "..", without NUL. Some stores cannot hold a key and
// another below it, such as a and a/b, at the same time; they refuse the second
// with [ErrInvalid].
type Bucket interface {
	// Put streams body into the key. It never holds a whole body in memory, and
	// a body that cannot be read to its end changes nothing. Of several puts of
	// one key at the same time the last one to end stays. With
	// [ErrUnknownOutcome] the body may have been stored. The info may lack
	// Uploaded.
	Put(ctx context.Context, key string, body io.Reader, opts PutOptions) (ObjectInfo, error)
	// Get returns the chosen part of the body, or [ErrNotFound]. The info is of
	// the whole body. ctx bounds the reading too; the caller closes the body.
	Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, ObjectInfo, error)
	// Head returns what Get does without the body.
	Head(ctx context.Context, key string) (ObjectInfo, error)
	// Delete removes the key; it is no error when there is none. With
	// [ErrUnknownOutcome] it may have been removed.
	Delete(ctx context.Context, key string) error
	// List returns a page of the keys, in the order of their bytes.
	List(ctx context.Context, opts ListOptions) (Listing, error)
}

// PutOptions are the facts stored beside a body, and a condition.
type PutOptions struct {
	// ContentType is at most 256 bytes of printable ASCII; empty means
	// application/octet-stream.
	ContentType string
	// Metadata has names of letters, digits, '-' and '_', which come back in
	// lower case, and values of any Unicode text. Together they take at most
	// 2 KiB, where a byte of a value that is not printable ASCII, and '%', counts
	// three times.
	Metadata map[string]string
	// IfAbsent has Put fail with [ErrPrecondition] when the key exists. Of
	// several such puts at the same time exactly one succeeds.
	IfAbsent bool
}

// GetOptions choose a part of a body, in bytes.
type GetOptions struct {
	// Offset is where the part begins; a negative one counts from the end. At or
	// after the end the part is empty; before the beginning it is the beginning.
	Offset int64
	// Length is the number of bytes wanted; 0 means to the end. There may be
	// fewer.
	Length int64
}

// ListOptions choose what List returns.
type ListOptions struct {
	// Prefix is what the keys begin with. It need not end at a slash.
	Prefix string
	// Delimiter, when it is not empty, has keys that contain it after the prefix
	// listed once for each common beginning up to it, as one of Prefixes.
	Delimiter string
	// Cursor is the one of the page before, with the same Prefix and Delimiter.
	Cursor string
	// Limit bounds the keys and prefixes of a page; 0 means 1,000, and so does
	// more.
	Limit int
}

// A Listing is one page of a bucket's keys. Keys and prefixes are in the order
// of their bytes, each list and over the pages.
type Listing struct {
	// Objects have no ContentType and Metadata: [Bucket.Head] tells those.
	Objects  []ObjectInfo
	Prefixes []string
	// Cursor continues the list; it is empty on the last page, on which there may
	// be nothing more. Keys that come or go between the pages do not make it skip
	// or repeat others.
	Cursor string
}

// ObjectInfo describes a stored body.
type ObjectInfo struct {
	Key  string
	Size int64 // bytes
	// ETag changes with the body. It has no quotes.
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
// nothing: it may be empty at any time, and what an event puts into it is there
// whether its commit succeeds or not. Values are not copied.
type Cache interface {
	Get(key string) (value any, ok bool)
	// Set keeps a value for ttl, or as long as the cache keeps values at most,
	// if that is shorter or ttl is 0.
	Set(key string, value any, ttl time.Duration)
	Delete(key string)
}
