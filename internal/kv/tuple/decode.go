package tuple

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

var errCut = errors.New("encoding ends inside the element")

// Decode is the inverse of [Key.Encode]. It accepts exactly what Encode can
// write, and all of b must be one key. The result shares no memory with b.
func Decode(b []byte) (Key, error) {
	k := Key{}
	for rest := b; len(rest) > 0; {
		elem, n, err := decodeElement(rest)
		if err != nil {
			return nil, fmt.Errorf("key element %d at byte %d: %w", len(k), len(b)-len(rest), err)
		}
		k = append(k, elem)
		rest = rest[n:]
	}
	return k, nil
}

// decodeElement reads the element at the start of b, which is not empty, and
// returns it with the number of bytes it took.
func decodeElement(b []byte) (elem any, n int, err error) {
	tag, payload := b[0], b[1:]
	switch tag {
	case tagBytes:
		v, n, err := unescape(payload)
		return v, 1 + n, err
	case tagString:
		v, n, err := unescape(payload)
		if err == nil && !utf8.Valid(v) {
			err = errUTF8
		}
		return string(v), 1 + n, err
	case tagNumber, tagBigInt:
		if len(payload) < 8 {
			return nil, 0, errCut
		}
		bits := binary.BigEndian.Uint64(payload)
		if tag == tagBigInt {
			return BigInt(bits ^ signBit), 9, nil
		}
		f := floatOf(bits)
		if math.IsNaN(f) {
			return nil, 0, errNaN
		}
		return f, 9, nil
	case tagBool:
		if len(payload) < 1 {
			return nil, 0, errCut
		}
		if payload[0] > 1 {
			return nil, 0, fmt.Errorf("boolean of value %#02x", payload[0])
		}
		return payload[0] == 1, 2, nil
	default:
		return nil, 0, fmt.Errorf("unknown tag %#02x", tag)
	}
}

// floatOf is the inverse of orderedBits.
func floatOf(ordered uint64) float64 {
	if ordered&signBit != 0 {
		return math.Float64frombits(ordered ^ signBit)
	}
	return math.Float64frombits(^ordered)
}

// unescape reads up to the terminator and returns the value with the number of
// bytes that it took, terminator included.
func unescape(b []byte) (v []byte, n int, err error) {
	v = []byte{}
	for {
		i := bytes.IndexByte(b[n:], terminator)
		if i < 0 {
			return nil, 0, errCut
		}
		v = append(v, b[n:n+i]...)
		n += i + 1
		if n == len(b) || b[n] != escape {
			return v, n, nil
		}
		v = append(v, terminator)
		n++
	}
}
