// Package tuple is the codec of the coordination store's keys: ordered tuples
// of bytes, strings, numbers, big integers and booleans.
//
// The byte order of encodings equals the element-wise order of keys: type rank
// first (in the order just given), then value, a shorter tuple before its
// extensions. Strings compare by their UTF-8 bytes, numbers by the total order
// of IEEE 754, in which -0 lies before 0 and is another key.
//
// An encoding is its elements one after the other, each a tag byte and a payload:
//
//	0x01 bytes    the bytes, 0x00 written as 0x00 0xFF, then 0x00
//	0x02 string   UTF-8, escaped and terminated in the same way
//	0x03 number   float64, big-endian; the sign bit flipped, or all bits if it was set
//	0x04 big int  int64, big-endian, plus 2^63
//	0x05 boolean  0x00 or 0x01
package tuple

// Tags of the element types. Their order is the order of the types.
const (
	tagBytes  = 0x01
	tagString = 0x02
	tagNumber = 0x03
	tagBigInt = 0x04
	tagBool   = 0x05
)

// In bytes and strings a zero byte ends the element, unless an escape follows
// it. No tag equals escape, and every tag sorts before it, which is what keeps
// an element that ends before one that goes on with a zero byte.
const (
	terminator = 0x00
	escape     = 0xFF
)

// maxExact is the largest n for which all integers of [-n, n] are float64s.
const maxExact = 1 << 53

// A Key is an ordered tuple. Its elements are []byte, string, float64, [BigInt]
// or bool. As a convenience int and int64 stand for the float64 of the same
// value, if there is one; a decoded key never holds them.
type Key []any

// BigInt is a signed 64-bit integer as a key element. It is a type of its own:
// BigInt(1) and the number 1 are different elements.
type BigInt int64

// Millis is the key element of an instant given in epoch milliseconds.
func Millis(ms int64) float64 { return float64(ms) }

// RangeEnd is the exclusive end of the encoded keys that extend prefix, which
// itself is their inclusive start. The result shares no memory with prefix.
func RangeEnd(prefix []byte) []byte {
	end := make([]byte, len(prefix)+1)
	copy(end, prefix)
	end[len(prefix)] = 0xFF
	return end
}
