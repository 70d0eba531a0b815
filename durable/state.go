package durable

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// State is the durable side of one object. It may be used only within an event
// of that object: any later use returns [ErrRevoked].
type State interface {
	ID() ID
	// SQL is the object's own SQLite database.
	SQL() SQL
	// Now is the fleet's time: the clock of the primary.
	Now() time.Time

	// SetAlarm sets the object's one alarm, in place of any other. It takes
	// effect with the event's commit.
	SetAlarm(t time.Time) error
	// SetAlarmIn sets the alarm to d after the commit, by the primary's clock.
	SetAlarmIn(d time.Duration) error
	// Alarm returns the time of the pending alarm; ok is false without one.
	Alarm() (t time.Time, ok bool)
	DeleteAlarm() error

	// AcceptSocket upgrades the request of the running event to a WebSocket
	// that belongs to the object. The attachment is kept beside it.
	AcceptSocket(w http.ResponseWriter, r *http.Request, attachment any) (Socket, error)
	// Sockets lists the object's sockets that this replica accepted.
	Sockets() []Socket
	// WakeSockets has the replicas that hold other sockets of the object run
	// [SocketWaker.SocketWake] soon after the event's commit.
	WakeSockets() error
}

// SQL is an object's database. Values are nil, int64, float64, string and
// []byte; a bool is bound as 0 or 1 and a time.Time as text.
type SQL interface {
	// Exec runs one or more statements.
	Exec(ctx context.Context, query string, args ...any) (Result, error)
	// Query runs one statement and yields its rows. A row is valid until the
	// next one. The first error ends the sequence.
	Query(ctx context.Context, query string, args ...any) iter.Seq2[Row, error]
	// Tx runs fn: all its writes or, when it returns an error or panics, none.
	// fn uses the SQL that it is given; a Tx within a Tx is an error, as are a
	// flush and a call out.
	Tx(ctx context.Context, fn func(SQL) error) error
}

// Result tells what an Exec did.
type Result struct {
	// Changes counts the rows that the last statement inserted, updated or
	// deleted.
	Changes int64
	// LastRowID is the rowid of the last insert on this database.
	LastRowID int64
}

// A Socket is a WebSocket that an object accepted.
type Socket interface {
	// Send queues a message; it leaves after the event's commit.
	Send(m SocketMessage) error
	Close(code int, reason string) error
	Attachment() any
	SetAttachment(v any)
}

// A SocketMessage is one WebSocket message.
type SocketMessage struct {
	Binary bool
	Data   []byte
}

// A SocketHandler is an Object that has WebSockets.
type SocketHandler interface {
	SocketMessage(ctx context.Context, s Socket, m SocketMessage) error
	// SocketClose runs when a socket has been closed by the other side. It does
	// not run when the replica that held the socket died.
	SocketClose(ctx context.Context, s Socket, code int, reason string) error
}

// A SocketWaker is a SocketHandler that is told when another replica's event
// of the same object called [State.WakeSockets].
type SocketWaker interface {
	SocketWake(ctx context.Context) error
}
