package tuple

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

const signBit = 1 << 63

var (
	errNaN  = errors.New("NaN has no place in the order of keys")
	errUTF8 = errors.New("string is not valid UTF-8")
)

// Encode returns the bytes of k. It fails on NaN, on a string that is not valid
// UTF-8, on an int or int64 that no float64 equals, and on any other type.
func (k Key) Encode() ([]byte, error) {
	b := make([]byte, 0, k.encodedLen())
	for i, elem := range k {
		var err error
		if b, err = appendElement(b, elem); err != nil {
			return nil, fmt.Errorf("key element %d: %w", i, err)
		}
	}
	return b, nil
}

// MustEncode encodes a key that the program itself builds from parts that were
// checked before. It panics where [Key.Encode] fails.
func MustEncode(elems ...any) []byte {
	b, err := Key(elems).Encode()
	if err != nil {
		panic("tuple: " + err.Error())
	}
	return b
}

func appendElement(b []byte, elem any) ([]byte, error) {
	switch v := elem.(type) {
	case []byte:
		return appendEscaped(append(b, tagBytes), v), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errUTF8
		}
		return appendEscaped(append(b, tagString), v), nil
	case BigInt:
		return binary.BigEndian.AppendUint64(append(b, tagBigInt), uint64(v)^signBit), nil
	case bool:
		if v {
			return append(b, tagBool, 1), nil
		}
		return append(b, tagBool, 0), nil
	}
	f, err := number(elem)
	if err != nil {
		return nil, err
	}
	return binary.BigEndian.AppendUint64(append(b, tagNumber), orderedBits(f)), nil
}

// number returns the float64 that a numeric element stands for.
func number(elem any) (float64, error) {
	switch v := elem.(type) {
	case float64:
		if math.IsNaN(v) {
			return 0, errNaN
		}
		return v, nil
	case int:
		return exactFloat(int64(v))
	case int64:
		return exactFloat(v)
	default:
		return 0, fmt.Errorf("type %T is not supported", elem)
	}
}

func exactFloat(n int64) (float64, error) {
	if !isExact(n) {
		return 0, fmt.Errorf("%d may not be exact as a number, use a big integer", n)
	}
	return float64(n), nil
}

func isExact(n int64) bool { return -maxExact <= n && n <= maxExact }

// orderedBits maps f to an integer so that unsigned order is the order of numbers.
func orderedBits(f float64) uint64 {
	bits := math.Float64bits(f)
	if bits&signBit != 0 {
		return ^bits
	}
	return bits ^ signBit
}

func appendEscaped[T []byte | string](b []byte, v T) []byte {
	for i := range len(v) {
		b = append(b, v[i])
		if v[i] == terminator {
			b = append(b, escape)
		}
	}
	return append(b, terminator)
}

// encodedLen is the length of the encoding of a key without unsupported elements.
func (k Key) encodedLen() int {
	n := 0
	for _, elem := range k {
		switch v := elem.(type) {
		case []byte:
			n += 2 + len(v) + bytes.Count(v, []byte{terminator})
		case string:
			n += 2 + len(v) + strings.Count(v, "\x00")
		case bool:
			n += 2
		default:
			n += 9
		}
	}
	return n
}
