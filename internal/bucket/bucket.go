// Package bucket has what every kind of bucket shares: the rules for keys,
// metadata and options, kept in one place, and a view of a part of a bucket.
// The interface is [durable.Bucket]; the packages below implement it.
package bucket

import (
	"fmt"

	"github.com/davidwkeith/dwk/durable"
)

// DefaultType is the content type of a body that was put without one.
const DefaultType = "application/octet-stream"

// An InvalidError says what a bucket refuses. It is a [durable.ErrInvalid].
type InvalidError struct {
	What   string // "key", "metadata", "cursor"...
	Value  string
	Reason string
}

func (e *InvalidError) Error() string {
	const most = 120
	if len(e.Value) > most {
		return fmt.Sprintf("%s %.*q... (%d bytes) %s", e.What, most, e.Value, len(e.Value), e.Reason)
	}
	return fmt.Sprintf("%s %q %s", e.What, e.Value, e.Reason)
}

// Unwrap returns [durable.ErrInvalid].
func (e *InvalidError) Unwrap() error { return durable.ErrInvalid }

// A ConflictError says that a bucket cannot hold Key beside Other, which it
// has. It is a [durable.ErrInvalid].
type ConflictError struct{ Key, Other string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("key %q cannot be stored beside %q", e.Key, e.Other)
}

// Unwrap returns [durable.ErrInvalid].
func (e *ConflictError) Unwrap() error { return durable.ErrInvalid }
