package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Key is the dotted key, as in "lease.ttl" or "queues[0].batch"; "" for
	// the file as a whole.
	Key string
	// Where names the source of the value: "dwk.yaml:12", "env:DWK_LEASE_TTL",
	// "flag", or "".
	Where   string
	Message string
}

func (p Problem) String() string {
	switch {
	case p.Key == "" && p.Where == "":
		return p.Message
	case p.Key == "":
		return p.Where + ": " + p.Message
	case p.Where == "":
		return p.Key + ": " + p.Message
	default:
		return fmt.Sprintf("%s (%s): %s", p.Key, p.Where, p.Message)
	}
}

// Error is returned for a configuration that cannot be used. It never contains
// the value of a secret.
type Error struct {
	Problems []Problem // at least one
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	lines := make([]string, 0, 1+len(e.Problems))
	lines = append(lines, fmt.Sprintf("configuration has %d problems:", len(e.Problems)))
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}
