package proto

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A Value is a value as a server may write it: integers are strings or
// numbers, base64 is padded or not. Anything else is an error.
type Value struct{ V any }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(raw []byte) (err error) {
	v.V, err = parseValue(raw, true)
	return err
}

// An Argument is a value as sqld accepts it: integers are strings only.
type Argument struct{ V any }

// UnmarshalJSON implements json.Unmarshaler.
func (a *Argument) UnmarshalJSON(raw []byte) (err error) {
	a.V, err = parseValue(raw, false)
	return err
}

// Values is a list of values as a server may write it. It is read at once,
// which takes a fraction of the time that reading its elements apart does.
type Values []any

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(raw []byte) (err error) {
	*v, err = parseList(raw, true)
	return err
}

// Arguments is a list of arguments as sqld accepts it.
type Arguments []any

// UnmarshalJSON implements json.Unmarshaler.
func (a *Arguments) UnmarshalJSON(raw []byte) (err error) {
	*a, err = parseList(raw, false)
	return err
}

var errValue = errors.New("not a value")

// ParseRow reads a list of values that may not be JSON at all, which is an error.
func ParseRow(raw []byte) ([]any, error) { return parseList(raw, true) }

// parseList reads a list of values, or null.
func parseList(raw []byte, numbers bool) ([]any, error) {
	rest := space(raw)
	if string(rest) == "null" {
		return nil, nil
	}
	errList := errors.New("not a list of values")
	if len(rest) == 0 || rest[0] != '[' {
		return nil, errList
	}
	list := []any{}
	rest = space(rest[1:])
	for first := true; len(rest) > 0 && rest[0] != ']'; first = false {
		if !first {
			if rest[0] != ',' {
				return nil, errList
			}
			rest = space(rest[1:])
		}
		v, after, err := parseNext(rest, numbers)
		if err != nil {
			return nil, err
		}
		list, rest = append(list, v), space(after)
	}
	if len(rest) == 0 || len(space(rest[1:])) > 0 {
		return nil, errList
	}
	return list, nil
}

// parseValue reads the flat object of a value; raw is valid JSON.
func parseValue(raw []byte, numbers bool) (any, error) {
	v, rest, err := parseNext(space(raw), numbers)
	if err == nil && len(space(rest)) > 0 {
		err = errValue
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// parseNext reads the object that raw begins with, and returns what follows.
func parseNext(raw []byte, numbers bool) (v any, rest []byte, err error) {
	var kind, text, value, blob []byte // the members, as they are written
	if len(raw) == 0 || raw[0] != '{' {
		return nil, nil, errValue
	}
	rest = space(raw[1:])
	more := true
	for more && len(rest) > 0 && rest[0] == '"' {
		n := tokenEnd(rest)
		key := rest[:n]
		if rest = space(rest[n:]); len(rest) == 0 || rest[0] != ':' {
			return nil, nil, errValue
		}
		rest = space(rest[1:])
		n = tokenEnd(rest)
		text, rest = rest[:n], space(rest[n:])
		switch string(key) {
		case `"type"`:
			kind = text
		case `"value"`:
			value = text
		case `"base64"`:
			blob = text
		}
		if more = len(rest) > 0 && rest[0] == ','; more {
			rest = space(rest[1:])
		}
	}
	if more || len(rest) == 0 || rest[0] != '}' {
		return nil, nil, errValue
	}
	v, err = valueOf(kind, value, blob, numbers)
	return v, rest[1:], err
}

// valueOf makes a value of its members.
func valueOf(kind, value, blob []byte, numbers bool) (any, error) {
	switch string(kind) {
	case `"null"`:
		return nil, nil
	case `"integer"`:
		return parseInteger(value, numbers)
	case `"float"`:
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil || len(value) == 0 || !(value[0] == '-' || digit(value[0])) {
			return nil, fmt.Errorf("not a float: %.40q", value)
		}
		return f, nil
	case `"text"`:
		return Unquote(value)
	case `"blob"`:
		return parseBlob(blob)
	default:
		return nil, fmt.Errorf("an unknown type of value: %.40q", kind)
	}
}

func parseInteger(value []byte, numbers bool) (any, error) {
	s := string(value)
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	} else if !numbers {
		return nil, fmt.Errorf("an integer must be a string: %.40q", value)
	}
	i, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s[0] == '+' {
		return nil, fmt.Errorf("not an integer: %.40q", value)
	}
	return i, nil
}

// parseBlob takes base64 without padding or with correct padding.
func parseBlob(raw []byte) (any, error) {
	if bytes.IndexByte(raw, '\\') >= 0 { // a slash may be escaped
		s, err := Unquote(raw)
		if err != nil {
			return nil, err
		}
		raw = []byte(`"` + s + `"`)
	}
	if len(raw) < 2 || raw[0] != '"' {
		return nil, errors.New("not base64")
	}
	text := raw[1 : len(raw)-1]
	if len(text)%4 == 0 {
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte{'='}), []byte{'='})
	}
	b := make([]byte, base64.RawStdEncoding.DecodedLen(len(text)))
	n, err := base64.RawStdEncoding.Strict().Decode(b, text)
	if err != nil || base64.RawStdEncoding.EncodedLen(n) != len(text) { // the decoder skips line ends
		return nil, errors.New("not base64")
	}
	return b[:n], nil
}

func space(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	return b
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// tokenEnd returns the length of the string, number or word that valid JSON
// begins with; 0 for anything else.
func tokenEnd(b []byte) int {
	if len(b) > 0 && b[0] == '"' {
		return stringEnd(b)
	}
	n := 0
	for n < len(b) && (digit(b[n]) || b[n] >= 'a' && b[n] <= 'z' || b[n] == 'E' || b[n] == '+' || b[n] == '-' || b[n] == '.') {
		n++
	}
	return n
}

func stringEnd(b []byte) int {
	for at := 1; ; {
		i := bytes.IndexByte(b[at:], '"')
		if i < 0 {
			return 0
		}
		at += i + 1
		escapes := 0 // before the quote
		for b[at-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
	}
}

var errText = errors.New("not a text of Unicode characters")

// Unquote reads a JSON string exactly: what encoding/json would replace, bytes
// that are not UTF-8 and halves of surrogate pairs, is an error.
func Unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) {
		return "", errText
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), nil
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return string(append(out, raw...)), nil
		}
		out = append(out, raw[:i]...)
		if raw = raw[i+1:]; len(raw) == 0 {
			return "", errText
		}
		c := raw[0]
		raw = raw[1:]
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := unicodeEscape(raw)
			if n == 0 {
				return "", errText
			}
			out, raw = utf8.AppendRune(out, r), raw[n:]
		default:
			return "", errText
		}
	}
	return string(out), nil
}

// unicodeEscape reads what follows \u, for a surrogate pair also its second
// half; n is 0 when it is not a character.
func unicodeEscape(b []byte) (r rune, n int) {
	r = hex4(b)
	if !utf16.IsSurrogate(r) {
		if r < 0 {
			return 0, 0
		}
		return r, 4
	}
	if len(b) < 10 || b[4] != '\\' || b[5] != 'u' {
		return 0, 0
	}
	if r = utf16.DecodeRune(r, hex4(b[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 10
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(b[:4]), 16, 16)
	if err != nil || n > math.MaxUint16 {
		return -1
	}
	return rune(n)
}
