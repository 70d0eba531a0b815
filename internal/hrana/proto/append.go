// Package proto has what client and server of Hrana over HTTP share: the JSON
// form of values, exact in both directions, and the types of messages.
package proto

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendValue appends the JSON form of nil, an int64, float64, string or
// []byte: integers as strings, blobs in base64 without padding. Floats that are
// not finite and texts that are not UTF-8 have none.
func AppendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, `{"type":"null"}`...), nil
	case int64:
		b = append(b, `{"type":"integer","value":"`...)
		b = strconv.AppendInt(b, v, 10)
		return append(b, `"}`...), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return b, fmt.Errorf("the float %v has no JSON form", v)
		}
		b = append(b, `{"type":"float","value":`...)
		b = strconv.AppendFloat(b, v, 'g', -1, 64)
		return append(b, '}'), nil
	case string:
		if !utf8.ValidString(v) {
			return b, fmt.Errorf("a text of %d bytes is not valid UTF-8", len(v))
		}
		b = append(b, `{"type":"text","value":`...)
		b = AppendString(b, v)
		return append(b, '}'), nil
	case []byte:
		b = append(b, `{"type":"blob","base64":"`...)
		b = base64.RawStdEncoding.AppendEncode(b, v)
		return append(b, `"}`...), nil
	default:
		return b, fmt.Errorf("a %T is not a value", v)
	}
}

// ValueSize returns the size of the JSON form of a value, not counting escapes
// in texts.
func ValueSize(v any) int {
	switch v := v.(type) {
	case nil:
		return len(`{"type":"null"}`)
	case int64:
		return len(`{"type":"integer","value":""}`) + len(strconv.FormatInt(v, 10))
	case string:
		return len(`{"type":"text","value":""}`) + len(v)
	case []byte:
		return len(`{"type":"blob","base64":""}`) + base64.RawStdEncoding.EncodedLen(len(v))
	default:
		return len(`{"type":"float","value":}`) + 10
	}
}

// AppendString appends the JSON form of a text that is valid UTF-8.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}
