package tuple

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// compare is the order that the encoding promises, stated on the elements.
func compare(a, b Key) int {
	for i := range min(len(a), len(b)) {
		if c := compareElement(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareElement(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case string:
		return strings.Compare(a, b.(string))
	case float64:
		b := b.(float64)
		if a == 0 && b == 0 {
			return cmp.Compare(bit(math.Signbit(b)), bit(math.Signbit(a)))
		}
		return cmp.Compare(a, b)
	case BigInt:
		return cmp.Compare(a, b.(BigInt))
	default:
		return cmp.Compare(bit(a.(bool)), bit(b.(bool)))
	}
}

func rank(elem any) int {
	switch elem.(type) {
	case []byte:
		return 1
	case string:
		return 2
	case float64:
		return 3
	case BigInt:
		return 4
	default:
		return 5
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func same(a, b Key) bool { return compare(a, b) == 0 }

// anyElement draws small alphabets often, so that elements share prefixes and
// values, and zero bytes and 0xFF meet each other.
func anyElement() *rapid.Generator[any] {
	raw := rapid.OneOf(
		rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 3, 4, 5, 0x61, 0xfe, 0xff}), 0, 4),
		rapid.SliceOf(rapid.Byte()))
	text := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xFF, 0xFFFD, 0x10FFFF}), 0, 4, -1),
		rapid.String())
	number := rapid.OneOf(
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1),
			math.MaxFloat64, math.SmallestNonzeroFloat64, maxExact, -maxExact, 2 * maxExact, 1e-7}),
		rapid.Float64(),
		rapid.Map(rapid.Int64Range(-maxExact, maxExact), Millis),
	)
	return rapid.OneOf(
		rapid.Map(raw, func(b []byte) any { return b }),
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(number, func(f float64) any { return f }),
		rapid.Map(rapid.Int64(), func(n int64) any { return BigInt(n) }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	)
}

func anyKey() *rapid.Generator[Key] {
	return rapid.Map(rapid.SliceOfN(anyElement(), 0, 5), func(elems []any) Key { return elems })
}

// anyPair draws two keys that often agree in their first elements.
func anyPair(t *rapid.T) (a, b Key) {
	common := anyKey().Draw(t, "common")
	a = append(common[:len(common):len(common)], anyKey().Draw(t, "a")...)
	b = append(common[:len(common):len(common)], anyKey().Draw(t, "b")...)
	return a, b
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey().Draw(t, "key")
		b, err := k.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode(b); err != nil || !same(back, k) {
			t.Fatalf("% x decoded as %v, %v", b, back, err)
		}
		if back, err := Parse(k.String()); err != nil || !same(back, k) {
			t.Fatalf("%s parsed as %v, %v", k, back, err)
		}
	})
}

func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyPair(t)
		if got, want := bytes.Compare(MustEncode(a...), MustEncode(b...)), compare(a, b); got != want {
			t.Fatalf("%v against %v: bytes say %d, elements %d", a, b, got, want)
		}
	})
}

func TestPrefixRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix, k := anyPair(t)
		start := MustEncode(prefix...)
		b := MustEncode(k...)
		inRange := bytes.Compare(b, start) >= 0 && bytes.Compare(b, RangeEnd(start)) < 0
		extends := len(k) >= len(prefix) && same(k[:len(prefix)], prefix)
		if inRange != extends {
			t.Fatalf("%v in the range of %v: %t, extends it: %t", k, prefix, inRange, extends)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	f.Add([]byte{tagNumber, 0xff, 0xf8, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{tagString, 'a', 0, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := k.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("% x decoded as %v, which encodes as % x, %v", b, k, again, err)
		}
		text := k.String()
		if len(text) > MaxText {
			return
		}
		if back, err := Parse(text); err != nil || !same(back, k) {
			t.Fatalf("%s parsed as %v, %v", text, back, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.text)
	}
	for _, text := range []string{`["\ud800"]`, `[{"$int":1}]`, `[{"$bytes":"AB=="}]`, `[9007199254740993]`, `[1e400,null,[]]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		b, err := k.Encode()
		if err != nil {
			t.Fatalf("%q parsed as %v, which has no encoding: %v", text, k, err)
		}
		if back, err := Decode(b); err != nil || !same(back, k) {
			t.Fatalf("%q parsed as %v, decoded as %v, %v", text, k, back, err)
		}
		if again, err := Parse(k.String()); len(k.String()) <= MaxText && (err != nil || !same(again, k)) {
			t.Fatalf("%q parsed as %v, its text as %v, %v", text, k, again, err)
		}
	})
}
