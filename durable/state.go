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

	// AcceptSocket makes the request of the running event a WebSocket of the
	// object, which must be a [SocketHandler]. The client is told (101) when the
	// event has been committed; a subprotocol, if any, and other headers of that
	// answer are set in w.Header() before; w is the handler's own, or passes what is
	// written on to it at once. The attachment is kept beside the socket.
	//
	// A request that cannot become one is answered by AcceptSocket, and the error
	// is [ErrInvalid]; so is one that a browser sent for a page of another site. An
	// application that is there for other sites checks Origin itself and deletes
	// the header before the call. [ErrDraining] and [ErrOverloaded], answered 503,
	// say that the replica takes no more sockets.
	AcceptSocket(w http.ResponseWriter, r *http.Request, attachment any) (Socket, error)
	// Sockets lists the object's sockets on the replica that runs the event, in
	// the order in which they were accepted. Those on other replicas are not in it:
	// see WakeSockets.
	Sockets() []Socket
	// WakeSockets has the other replicas that hold sockets of the object run
	// [SocketWaker.SocketWake] within a poll interval of the event's commit, to
	// send what was stored. Several calls may lead to one run.
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

// A Socket is a WebSocket that an object accepted. It stays on the replica that
// accepted it, and is used within events of the object; two values are equal when
// they are the same socket. What an event does with it is undone with the event.
type Socket interface {
	// Send queues a copy of a message, which leaves after the event's commit. A
	// socket that is closed takes none, which is no error; one that is too slow
	// for what is sent to it is cut off with 1008.
	Send(m SocketMessage) error
	// Close closes the socket after the event's commit, behind what was sent. There
	// is no SocketClose for it. The code is 1000, 1001, 1003, 1007 to 1014 or 3000 to
	// 4999, and the reason has at most 123 bytes.
	Close(code int, reason string) error
	// Attachment is what was attached last. It lives as long as the socket,
	// whatever becomes of the instance; treat it as a value.
	Attachment() any
	// SetAttachment attaches v with the event's commit. Outside of an event it
	// does nothing.
	SetAttachment(v any)
}

// A SocketMessage is one WebSocket message.
type SocketMessage struct {
	Binary bool
	Data   []byte
}

// A SocketHandler is an Object that has WebSockets. Messages and closes are
// events of the object like its requests; those of one socket come one after the
// other, in order. One that could not be applied (contended, fenced, store down)
// is run again until the event's deadline.
type SocketHandler interface {
	// SocketMessage runs for each message. When it fails or panics nothing of the
	// event is applied and the socket is closed with 1011; when the event could not
	// be applied in time, with 1012.
	SocketMessage(ctx context.Context, s Socket, m SocketMessage) error
	// SocketClose runs when a socket has ended that the object did not close: the
	// other side closed it (its code, or 1005 for none), it broke (1006), or the
	// host closed it. The socket is not in Sockets any more. It does not run when
	// the replica that held the socket died.
	SocketClose(ctx context.Context, s Socket, code int, reason string) error
}

// A SocketWaker is a SocketHandler that is told when another replica's event
// of the same object called [State.WakeSockets].
type SocketWaker interface {
	// SocketWake runs on a replica that holds sockets of the object. It may also run
	// without a call. When it fails, they are closed with 1011, and with 1012 when it
	// could not run in time, so that their clients come again and catch up.
	SocketWake(ctx context.Context) error
}
