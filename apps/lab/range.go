package lab

import (
	"math"
	"strconv"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// parseRange reads a Range header (RFC 9110, 14.2) of one range. It is false
// for one that is to be passed over: none, another unit, several ranges or bad
// syntax.
func parseRange(values []string) (part durable.GetOptions, ok bool) {
	if len(values) != 1 {
		return part, false
	}
	unit, spec, _ := strings.Cut(values[0], "=")
	from, to, isRange := strings.Cut(strings.TrimSpace(spec), "-")
	first, hasFirst := parsePlace(from)
	last, hasLast := parsePlace(to)
	if !strings.EqualFold(unit, "bytes") || !isRange || from != "" && !hasFirst || to != "" && !hasLast {
		return part, false
	}
	switch {
	case hasFirst && hasLast && first > last:
		return part, false
	case hasFirst && hasLast && last != math.MaxInt64:
		return durable.GetOptions{Offset: first, Length: last - first + 1}, true
	case hasFirst:
		return durable.GetOptions{Offset: first}, true
	case hasLast && last == 0: // the last no bytes
		return durable.GetOptions{Offset: math.MaxInt64}, true
	default:
		return durable.GetOptions{Offset: -last}, hasLast
	}
}

// parsePlace reads digits. Places beyond all bodies are one.
func parsePlace(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = math.MaxInt64
	}
	return n, true
}

// resolve returns where a part of a body of size bytes begins, and its length.
func resolve(part durable.GetOptions, size int64) (offset, length int64) {
	offset = part.Offset
	if offset < 0 {
		offset = max(0, size+offset)
	}
	length = size - min(offset, size)
	if part.Length > 0 {
		length = min(length, part.Length)
	}
	return offset, length
}
