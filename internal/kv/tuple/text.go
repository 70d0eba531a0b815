package tuple

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxText bounds the text that [Parse] reads, in bytes.
const MaxText = 64 << 10

// Members of the JSON objects that stand for elements which JSON has no form for.
const (
	bytesMember  = "$bytes"  // base64, standard alphabet, padded
	intMember    = "$int"    // decimal, signed 64 bits
	numberMember = "$number" // "Infinity" or "-Infinity"
)

// String returns k as one line of JSON from which [Parse] makes the same key,
// with int and int64 become float64. A key that has no encoding gives a text
// that says so and does not parse.
func (k Key) String() string {
	text, err := k.MarshalJSON()
	if err != nil {
		return fmt.Sprintf("(%v)", err)
	}
	return string(text)
}

// MarshalJSON writes the form that [Parse] reads. It fails where [Key.Encode] does.
func (k Key) MarshalJSON() ([]byte, error) {
	text := []byte{'['}
	for i, elem := range k {
		if i > 0 {
			text = append(text, ',')
		}
		var err error
		if text, err = appendText(text, elem); err != nil {
			return nil, fmt.Errorf("key element %d: %w", i, err)
		}
	}
	return append(text, ']'), nil
}

// UnmarshalJSON is [Parse].
func (k *Key) UnmarshalJSON(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

func appendText(text []byte, elem any) ([]byte, error) {
	switch v := elem.(type) {
	case []byte:
		return appendMember(text, bytesMember, base64.StdEncoding.EncodeToString(v)), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errUTF8
		}
		return appendString(text, v), nil
	case BigInt:
		return appendMember(text, intMember, strconv.FormatInt(int64(v), 10)), nil
	case bool:
		return strconv.AppendBool(text, v), nil
	}
	f, err := number(elem)
	if err != nil {
		return nil, err
	}
	switch {
	case math.IsInf(f, 1):
		return appendMember(text, numberMember, "Infinity"), nil
	case math.IsInf(f, -1):
		return appendMember(text, numberMember, "-Infinity"), nil
	case math.Abs(f) > maxExact || f != 0 && math.Abs(f) < 1e-6:
		return strconv.AppendFloat(text, f, 'e', -1, 64), nil
	default:
		return strconv.AppendFloat(text, f, 'f', -1, 64), nil
	}
}

func appendMember(text []byte, member, value string) []byte {
	return fmt.Appendf(text, `{%q:%q}`, member, value)
}

func appendString(text []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // a string into memory: neither can fail
	return append(text, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

// Parse reads a key from a JSON array of at most [MaxText] bytes. Strings,
// numbers and booleans stand for themselves, {"$bytes":"AAE="} for bytes,
// {"$int":"123"} for a big integer, {"$number":"-Infinity"} for an infinite
// number. An integer that a float64 may not carry exactly is refused rather
// than rounded to the name of another key.
func Parse(text string) (Key, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("key text of %d bytes is longer than %d", len(text), MaxText)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("key text is not valid UTF-8")
	}
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") {
		return nil, errors.New(`key is not a JSON array such as ["a",1]`)
	}
	var elems []json.RawMessage
	if err := json.Unmarshal([]byte(text), &elems); err != nil {
		return nil, fmt.Errorf("key is not valid JSON: %w", err)
	}
	k := make(Key, len(elems))
	for i, raw := range elems {
		var err error
		if k[i], err = parseElement(raw); err != nil {
			return nil, fmt.Errorf("key element %d: %w", i, err)
		}
	}
	return k, nil
}

// parseElement reads one element from raw, which is valid JSON without space around it.
func parseElement(raw json.RawMessage) (any, error) {
	switch raw[0] {
	case '"':
		return parseString(raw)
	case 't', 'f':
		return raw[0] == 't', nil
	case '{':
		return parseMember(raw)
	case 'n':
		return nil, errors.New("null is no key element")
	case '[':
		return nil, errors.New("an array is no key element")
	default:
		return parseNumber(string(raw))
	}
}

func parseNumber(text string) (any, error) {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || !isExact(n) {
			return nil, fmt.Errorf(`integer %s may not be exact as a number: write {"%s":"%[1]s"} for a big integer, or use an exponent`, text, intMember)
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("number %s is out of range", text)
	}
	return f, nil
}

func parseString(raw []byte) (string, error) {
	if loneSurrogate(raw) {
		return "", errors.New("string has half of a surrogate pair")
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", err
	}
	return s, nil
}

func parseMember(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.Token() // the brace
	name, _ := dec.Token()
	value, _ := dec.Token()
	text, ok := value.(string)
	if !ok || dec.More() {
		return nil, errors.New(`an object must be {"$bytes":"base64"}, {"$int":"123"} or {"$number":"Infinity"}`)
	}
	switch name {
	case bytesMember:
		// Strict, so that one text stands for one key; the decoder alone would skip line breaks.
		b, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return nil, fmt.Errorf("%s is not padded standard base64", bytesMember)
		}
		return b, nil
	case intMember:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %q is not an integer of 64 bits", intMember, text)
		}
		return BigInt(n), nil
	case numberMember:
		switch text {
		case "Infinity":
			return math.Inf(1), nil
		case "-Infinity":
			return math.Inf(-1), nil
		}
		return nil, fmt.Errorf("%s %q is neither Infinity nor -Infinity", numberMember, text)
	default:
		return nil, fmt.Errorf("unknown kind of element %q", name)
	}
}

// loneSurrogate reports whether the JSON string raw escapes half of a surrogate
// pair, for which encoding/json silently puts U+FFFD.
func loneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		unit := codeUnit(raw[i:])
		i += 4
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			if raw[i+1] != '\\' || raw[i+2] != 'u' {
				return true
			}
			if low := codeUnit(raw[i+2:]); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

// codeUnit is the value of an escape that starts at its "u".
func codeUnit(raw []byte) uint64 {
	unit, _ := strconv.ParseUint(string(raw[1:5]), 16, 16)
	return unit
}
