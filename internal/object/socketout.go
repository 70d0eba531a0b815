package object

import (
	"fmt"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/object/socket"
)

// What an event does with sockets is seen when it has been committed, and undone
// when it is not.
type socketEffects struct {
	// upgradable is set for an event whose request may become a socket.
	upgradable bool
	// sock is the socket that the event accepted, and accepted is set while that
	// has not been committed.
	sock     *sock
	accepted bool
	// hold has the commit store that this replica holds sockets of the object, and
	// wake has it mark the entries of the others that do.
	hold, wake bool
	outs       []socketOut
	outBytes   int64
	// closing are the sockets that it has closed.
	closing map[*sock]bool
	// attached are the attachments that were replaced, oldest first.
	attached []attached
}

// A socketOut is a message for a socket or, without one, its close.
type socketOut struct {
	k       *sock
	message *socket.Message
	code    int
	reason  string
}

type attached struct {
	k   *sock
	old any
}

// send queues a message. One that goes to many sockets is kept once.
func (e *socketEffects) send(k *sock, m durable.SocketMessage, limit int64) error {
	var message *socket.Message
	if n := len(e.outs); n > 0 && e.outs[n-1].message != nil && e.outs[n-1].message.Is(m) {
		message = e.outs[n-1].message
	} else {
		if e.outBytes += int64(len(m.Data)); e.outBytes > limit {
			e.outBytes -= int64(len(m.Data))
			return fmt.Errorf("%w: an event sends at most %d bytes to sockets before a commit", durable.ErrTooLarge, limit)
		}
		message = socket.NewMessage(m)
	}
	e.outs = append(e.outs, socketOut{k: k, message: message})
	return nil
}

// close closes a socket.
func (e *socketEffects) close(k *sock, code int, reason string) {
	e.outs = append(e.outs, socketOut{k: k, code: code, reason: reason})
	if e.closing == nil {
		e.closing = map[*sock]bool{}
	}
	e.closing[k] = true
}

// letOut lets out what a commit has made durable.
func (e *socketEffects) letOut() {
	for _, o := range e.outs {
		if o.message != nil {
			o.k.conn.Send(o.message)
		} else {
			o.k.conn.Close(o.code, o.reason)
			o.k.gone()
		}
	}
	e.forget()
}

// takeBack undoes what was not committed.
func (e *socketEffects) takeBack() {
	for i := len(e.attached) - 1; i >= 0; i-- {
		at := e.attached[i]
		at.k.mu.Lock()
		at.k.attachment = at.old
		at.k.mu.Unlock()
	}
	if e.accepted {
		e.sock.gone()
		e.sock.conn.Drop()
		e.sock = nil
	}
	e.forget()
}

// forget forgets what was let out or taken back. The socket stays, which whoever
// sends the answer may be looking at.
func (e *socketEffects) forget() {
	e.accepted, e.hold, e.wake = false, false, false
	e.outs, e.outBytes, e.closing, e.attached = nil, 0, nil, nil
}
