package socket

import (
	"bytes"
	"slices"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/davidwkeith/dwk/durable"
)

// compressFrom is the size from which messages are worth compressing.
const compressFrom = 512

// A Message is one that goes out, to one socket or to many: its frame is made
// once.
type Message struct {
	binary bool
	size   int
	data   []byte // nil once it is prepared

	once     sync.Once
	prepared *websocket.PreparedMessage
	err      error
}

// NewMessage returns a message with a copy of the data.
func NewMessage(m durable.SocketMessage) *Message {
	return &Message{binary: m.Binary, size: len(m.Data), data: slices.Clone(m.Data)}
}

// Is reports whether the message, which has not been sent yet, is m.
func (m *Message) Is(o durable.SocketMessage) bool {
	return m.binary == o.Binary && bytes.Equal(m.data, o.Data)
}

// Size is the size of the data in bytes.
func (m *Message) Size() int { return m.size }

func (m *Message) frame() (*websocket.PreparedMessage, error) {
	m.once.Do(func() {
		kind := websocket.TextMessage
		if m.binary {
			kind = websocket.BinaryMessage
		}
		m.prepared, m.err = websocket.NewPreparedMessage(kind, m.data)
		m.data = nil
	})
	return m.prepared, m.err
}
