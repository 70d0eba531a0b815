// Package queue is the fleet's message queues: at least once, durable,
// unordered. A message is an entry of the coordination store whose key holds
// the time it is due. A claim moves it to a later time under an id chosen
// before sending, so that a consumer that dies only costs the time until then;
// acknowledging, retrying, renewing and dead-lettering are guarded by the claim.
//
// Every time is the primary's, decided inside the statement.
package queue

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// The first elements of the keys.
const (
	PrefixDue   = "dwk_queue_due"
	PrefixDead  = "dwk_queue_dead"
	PrefixPause = "dwk_queue_pause"
)

// Limits.
const (
	// MaxBody bounds a message's body, in bytes of its JSON text.
	MaxBody = 128 << 10
	// MaxDelay bounds how long a message can be delayed.
	MaxDelay = 365 * 24 * time.Hour
	// MaxName bounds a queue's name, in bytes.
	MaxName = 256
	// maxDepth bounds how deeply a body nests: SQLite reads 1,000 levels.
	maxDepth = 500
	// maxRow bounds a stored message that can be delivered, in bytes: a body and
	// what is kept beside it.
	maxRow = MaxBody + 4<<10
	// maxError bounds the text of an error that is kept, in bytes.
	maxError = 1 << 10
	// numberLen is the length of a number in a key, in bytes.
	numberLen = 9
)

// CheckName refuses what cannot be the name of a queue.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) {
		return fmt.Errorf("queue name %.80q: %w: 1 to %d bytes of UTF-8", name, durable.ErrInvalid, MaxName)
	}
	return nil
}

func dueKey(queue string) []byte   { return tuple.MustEncode(PrefixDue, queue) }
func deadKey(queue string) []byte  { return tuple.MustEncode(PrefixDead, queue) }
func pauseKey(queue string) []byte { return tuple.MustEncode(PrefixPause, queue) }
