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
	s := scanner{in: raw}
	x, err := s.value(true)
	if err == nil {
		err = s.end()
	}
	if err == nil {
		v.V = x
	}
	return err
}

// Values is a list of values as a server may write it. It is read at once,
// which takes a fraction of the time that reading its elements apart does.
type Values []any

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(raw []byte) (err error) {
	*v, err = ParseRow(raw)
	return err
}

// ParseRow reads a list of values, or null.
func ParseRow(raw []byte) (list []any, err error) {
	s := scanner{in: raw}
	if !s.null() {
		list, err = s.values(true)
	}
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// values reads a list of values. An integer may be a JSON number if numbers says
// so.
func (s *scanner) values(numbers bool) ([]any, error) {
	if err := s.open('['); err != nil {
		return nil, err
	}
	list := []any{}
	for n := 0; ; n++ {
		if ok, err := s.more(n, ']'); !ok {
			s.length = n
			return list, err
		}
		if n == 0 { // as long as the one before: all together no list has twice what it needs
			list = make([]any, 0, max(s.length, 1))
		}
		v, err := s.value(numbers)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

// value reads the object of a value.
func (s *scanner) value(numbers bool) (any, error) {
	s.next()
	if v, ok, err := s.usual(); ok {
		return v, err
	}
	var kind string
	var value, blob []byte // as they are written
	err := s.object(func(name []byte) (id int, err error) {
		switch string(name) {
		case "type":
			kind, err = s.text()
			return 1, err
		case "value":
			value, err = s.skip()
			return 2, err
		case "base64":
			blob, err = s.skip()
			return 3, err
		}
		return 0, nil
	})
	if err != nil {
		return nil, err
	}
	switch kind {
	case "null":
		return nil, nil
	case "integer":
		return parseInteger(value, numbers)
	case "float":
		return parseFloat(value)
	case "text":
		return Unquote(value)
	case "blob":
		return parseBlob(blob)
	default:
		return nil, fmt.Errorf("an unknown type of value: %.40q", kind)
	}
}

// usual reads a value in the form that nearly all clients and servers write. ok
// is false, and nothing read, when it has another one.
func (s *scanner) usual() (v any, ok bool, err error) {
	const head = `{"type":"`
	start := s.at
	defer func() {
		if !ok {
			s.at = start
		}
	}()
	if !s.word(head) || s.at >= len(s.in) {
		return nil, false, nil
	}
	switch s.in[s.at] {
	case 'n':
		return nil, s.word(`null"}`), nil
	case 'f':
		if !s.word(`float","value":`) {
			return nil, false, nil
		}
		raw, err := s.number()
		if err != nil || !s.word("}") {
			return nil, false, nil
		}
		v, err = parseFloat(raw)
		return v, true, err
	}
	kind := s.in[s.at]
	if !(kind == 'i' && s.word(`integer","value":`) || kind == 't' && s.word(`text","value":`) || kind == 'b' && s.word(`blob","base64":`)) {
		return nil, false, nil
	}
	from := s.at
	raw, escaped, err := s.token()
	if err != nil || escaped || !s.word("}") {
		return nil, false, nil
	}
	switch kind {
	case 'i':
		v, err = parseInteger(s.in[from:s.at-1], false)
	case 't':
		v = string(raw)
	default:
		v, err = decodeBlob(raw)
	}
	return v, true, err
}

func parseFloat(value []byte) (any, error) {
	if len(value) == 0 || !(value[0] == '-' || digit(value[0])) {
		return nil, fmt.Errorf("not a float: %.40q", value)
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return nil, fmt.Errorf("not a float: %.40q", value)
	}
	return f, nil
}

func parseInteger(value []byte, numbers bool) (any, error) {
	s := value
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	} else if !numbers {
		return nil, fmt.Errorf("an integer must be a string: %.40q", value)
	}
	i, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || s[0] == '+' {
		return nil, fmt.Errorf("not an integer: %.40q", value)
	}
	return i, nil
}

// parseBlob takes a JSON string of base64.
func parseBlob(raw []byte) (any, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, errBase64
	}
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') >= 0 { // a slash may be escaped
		var err error
		if raw, err = unescape(raw); err != nil {
			return nil, err
		}
	}
	return decodeBlob(raw)
}

var errBase64 = errors.New("not base64")

// decodeBlob takes base64 without padding or with correct padding.
func decodeBlob(text []byte) (any, error) {
	if len(text)%4 == 0 {
		text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte{'='}), []byte{'='})
	}
	b := make([]byte, base64.RawStdEncoding.DecodedLen(len(text)))
	n, err := base64.RawStdEncoding.Strict().Decode(b, text)
	if err != nil || base64.RawStdEncoding.EncodedLen(n) != len(text) { // the decoder skips line ends
		return nil, errBase64
	}
	return b[:n], nil
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

var errText = errors.New("not a text of Unicode characters")

// Unquote reads a JSON string exactly: what encoding/json would replace, bytes
// that are not UTF-8 and halves of surrogate pairs, is an error.
func Unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) {
		return "", errText
	}
	raw, err := unescape(raw[1 : len(raw)-1])
	if err != nil {
		return "", err
	}
	return string(raw), nil
}

// unescape replaces the escapes of a string. Where there is none it returns raw
// itself.
func unescape(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, nil
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(out, raw...), nil
		}
		out = append(out, raw[:i]...)
		if raw = raw[i+1:]; len(raw) == 0 {
			return nil, errText
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
				return nil, errText
			}
			out, raw = utf8.AppendRune(out, r), raw[n:]
		default:
			return nil, errText
		}
	}
	return out, nil
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
