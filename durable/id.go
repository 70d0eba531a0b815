package durable

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// An ID names an object within its class: 1 to 64 lower-case hex digits.
type ID struct{ hex, name string }

// IDFromName returns the id of a named object: the SHA-256 of the UTF-8 name.
func IDFromName(name string) ID {
	sum := sha256.Sum256([]byte(name))
	return ID{hex: hex.EncodeToString(sum[:]), name: name}
}

// NewUniqueID returns a random id of 64 digits.
func NewUniqueID() ID {
	var b [32]byte
	rand.Read(b[:]) //nolint:errcheck // never fails: it ends the program instead
	return ID{hex: hex.EncodeToString(b[:])}
}

// ParseID takes an id as its String method prints it.
func ParseID(s string) (ID, error) {
	if len(s) < 1 || len(s) > 64 {
		return ID{}, fmt.Errorf("object id has %d digits, want 1 to 64", len(s))
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ID{}, fmt.Errorf("object id %q is not lower-case hex", s)
		}
	}
	return ID{hex: s}, nil
}

// String returns the hex digits.
func (id ID) String() string { return id.hex }

// Name returns the name that the id was made from, or "" when it is not known.
func (id ID) Name() string { return id.name }

// Equal reports whether both name the same object.
func (id ID) Equal(other ID) bool { return id.hex == other.hex }

// IsZero reports whether the id names no object.
func (id ID) IsZero() bool { return id.hex == "" }
