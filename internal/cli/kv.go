package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/lease"
)

func newKV(e *env) *cobra.Command {
	return group("kv", "Raw entries of the coordination store", `Look at raw entries of the coordination store, and change them.

Keys are JSON arrays: '["dwk_lease","Counter","0a"]'. Bytes are written
{"$bytes":"base64"}, big integers {"$int":"123"}. Quote keys for the shell.

Keys that begin with "dwk_" belong to the fleet. Reading them is safe at any
time; each has a command of its own that changes it safely.`,
		newKVGet(e), newKVList(e), newKVSet(e), newKVDelete(e), newKVDump(e), newKVSweep(e), newKVStats(e))
}

// systemPrefix begins the first element of the keys that the fleet itself uses.
const systemPrefix = "dwk_"

// parseKey reads a key from the command line.
func parseKey(what, text string) (tuple.Key, error) {
	key, err := tuple.Parse(text)
	if err != nil {
		return nil, withHint(usagef("%s: %w", what, err), `a key is one JSON array, in quotes for the shell: '["a",1]'`)
	}
	if _, err := key.Encode(); err != nil {
		return nil, usagef("%s: %w", what, err)
	}
	return key, nil
}

// isSystem reports whether the key is one of the fleet's.
func isSystem(key tuple.Key) bool {
	if len(key) == 0 {
		return false
	}
	first, ok := key[0].(string)
	return ok && strings.HasPrefix(first, systemPrefix)
}

func isLease(key tuple.Key) bool { return len(key) > 0 && key[0] == lease.Prefix }

// entryJSON is an entry as commands write it.
type entryJSON struct {
	Key          tuple.Key       `json:"key"`
	Value        json.RawMessage `json:"value"`
	Versionstamp string          `json:"versionstamp"`
	// ExpiresAt is epoch milliseconds by the primary's clock.
	ExpiresAt *int64 `json:"expires_at"`
}

func asJSON(e kv.Entry) (entryJSON, error) {
	if !json.Valid(e.Value) {
		return entryJSON{}, fmt.Errorf("entry %s: its value is not JSON", e.Key)
	}
	return entryJSON{e.Key, e.Value, e.Stamp.String(), optional(e.ExpiresAt)}, nil
}

// optional is nil for 0.
func optional(ms int64) *int64 {
	if ms == 0 {
		return nil
	}
	return &ms
}

// instant is how people read epoch milliseconds.
func instant(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// expiry is how people read when an entry expires.
func expiry(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return instant(ms)
}

// stampFlag is a versionstamp on the command line.
type stampFlag struct {
	stamp kv.Versionstamp
	set   bool
}

func (s *stampFlag) String() string {
	if s == nil || !s.set {
		return ""
	}
	return s.stamp.String()
}

func (s *stampFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("must be a versionstamp, as kv get and lease inspect show it")
	}
	s.stamp, s.set = kv.Versionstamp(n), true
	return nil
}

func (s *stampFlag) Type() string { return "stamp" }
