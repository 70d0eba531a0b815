package tuple

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// vectors are the encodings that are a contract with what is already stored.
var vectors = []struct {
	key  Key
	hex  string
	text string
}{
	{Key{}, "", `[]`},
	{Key{"a"}, "02 61 00", `["a"]`},
	{Key{"a", "b"}, "02 61 00 02 62 00", `["a","b"]`},
	{Key{"a\x00b"}, "02 61 00 ff 62 00", `["a\u0000b"]`},
	{Key{0.0}, "03 80 00 00 00 00 00 00 00", `[0]`},
	{Key{1.0}, "03 bf f0 00 00 00 00 00 00", `[1]`},
	{Key{-1.0}, "03 40 0f ff ff ff ff ff ff", `[-1]`},
	{Key{1700000000000.0}, "03 c2 78 bc fe 56 80 00 00", `[1700000000000]`},
	{Key{BigInt(0)}, "04 80 00 00 00 00 00 00 00", `[{"$int":"0"}]`},
	{Key{true}, "05 01", `[true]`},
	{Key{[]byte{0, 1}}, "01 00 ff 01 00", `[{"$bytes":"AAE="}]`},

	{Key{false}, "05 00", `[false]`},
	{Key{""}, "02 00", `[""]`},
	{Key{[]byte{}}, "01 00", `[{"$bytes":""}]`},
	{Key{[]byte{0xff, 0x00}}, "01 ff 00 ff 00", `[{"$bytes":"/wA="}]`},
	{Key{math.Copysign(0, -1)}, "03 7f ff ff ff ff ff ff ff", `[-0]`},
	{Key{math.Inf(1)}, "03 ff f0 00 00 00 00 00 00", `[{"$number":"Infinity"}]`},
	{Key{math.Inf(-1)}, "03 00 0f ff ff ff ff ff ff", `[{"$number":"-Infinity"}]`},
	{Key{0.5}, "03 bf e0 00 00 00 00 00 00", `[0.5]`},
	{Key{math.Ldexp(1, 53)}, "03 c3 40 00 00 00 00 00 00", `[9007199254740992]`},
	{Key{math.Ldexp(1, 60)}, "03 c3 b0 00 00 00 00 00 00", `[1.152921504606847e+18]`},
	{Key{math.SmallestNonzeroFloat64}, "03 80 00 00 00 00 00 00 01", `[5e-324]`},
	{Key{BigInt(math.MinInt64)}, "04 00 00 00 00 00 00 00 00", `[{"$int":"-9223372036854775808"}]`},
	{Key{BigInt(math.MaxInt64)}, "04 ff ff ff ff ff ff ff ff", `[{"$int":"9223372036854775807"}]`},
	{Key{"<é\U0001F600>"}, "02 3c c3 a9 f0 9f 98 80 3e 00", `["<é😀>"]`},
	{Key{"dwk_lease", "Pod", "0a"}, "02 64 77 6b 5f 6c 65 61 73 65 00 02 50 6f 64 00 02 30 61 00", `["dwk_lease","Pod","0a"]`},
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectors(t *testing.T) {
	for _, v := range vectors {
		want := unhex(t, v.hex)
		got, err := v.key.Encode()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: encoded as % x, %v; want % x", v.text, got, err, want)
		}
		back, err := Decode(want)
		if err != nil || !same(back, v.key) {
			t.Errorf("% x: decoded as %#v, %v; want %#v", want, back, err, v.key)
		}
		if got := v.key.String(); got != v.text {
			t.Errorf("text of % x is %s, want %s", want, got, v.text)
		}
		parsed, err := Parse(v.text)
		if err != nil || !same(parsed, v.key) {
			t.Errorf("%s: parsed as %#v, %v; want %#v", v.text, parsed, err, v.key)
		}
	}
}

func TestIntegersAreNumbers(t *testing.T) {
	for _, k := range []Key{{7}, {int64(7)}, {Millis(7)}} {
		if got := MustEncode(k...); !bytes.Equal(got, MustEncode(7.0)) {
			t.Errorf("%#v: encoded as % x", k, got)
		}
		if got := k.String(); got != "[7]" {
			t.Errorf("%#v: text %s", k, got)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, c := range []struct {
		key  Key
		want string
	}{
		{Key{math.NaN()}, "key element 0: NaN"},
		{Key{"a", "\xff"}, "key element 1: string is not valid UTF-8"},
		{Key{"a", nil}, "key element 1: type <nil> is not supported"},
		{Key{"a", true, uint8(1)}, "key element 2: type uint8 is not supported"},
		{Key{Key{"a"}}, "key element 0: type tuple.Key is not supported"},
		{Key{maxExact + 1}, "key element 0: 9007199254740993 may not be exact"},
		{Key{int64(math.MinInt64)}, "key element 0: -9223372036854775808 may not be exact"},
	} {
		if b, err := c.key.Encode(); err == nil || b != nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%#v: % x, error %v; want %q", c.key, b, err, c.want)
		}
		if _, err := c.key.MarshalJSON(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%#v: text error %v; want %q", c.key, err, c.want)
		}
		if _, err := Parse(c.key.String()); err == nil {
			t.Errorf("%#v: its text %s parses", c.key, c.key)
		}
	}
}

func TestMustEncodePanics(t *testing.T) {
	defer func() {
		if r := recover(); r != "tuple: key element 0: type struct {} is not supported" {
			t.Errorf("panic value %v", r)
		}
	}()
	MustEncode(struct{}{})
}

func TestDecodeRefuses(t *testing.T) {
	for _, c := range []struct{ hex, want string }{
		{"00", "key element 0 at byte 0: unknown tag 0x00"},
		{"06", "key element 0 at byte 0: unknown tag 0x06"},
		{"02 61 00 ff", "key element 0 at byte 0: encoding ends"},
		{"02 61", "key element 0 at byte 0: encoding ends"},
		{"05 01 01 00 ff 61", "key element 1 at byte 2: encoding ends"},
		{"02 ff 00", "key element 0 at byte 0: string is not valid UTF-8"},
		{"02 ed a0 80 00", "key element 0 at byte 0: string is not valid UTF-8"},
		{"03 80 00 00 00 00 00 00", "key element 0 at byte 0: encoding ends"},
		{"04", "key element 0 at byte 0: encoding ends"},
		{"05", "key element 0 at byte 0: encoding ends"},
		{"05 02", "key element 0 at byte 0: boolean of value 0x02"},
		{"03 ff f8 00 00 00 00 00 00", "key element 0 at byte 0: NaN"},
		{"03 00 00 00 00 00 00 00 00", "key element 0 at byte 0: NaN"},
		{"02 61 00 ff 62 00 61", "key element 1 at byte 6: unknown tag 0x61"},
	} {
		if k, err := Decode(unhex(t, c.hex)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, error %v; want %q", c.hex, k, err, c.want)
		}
	}
}

func TestResultsShareNoMemory(t *testing.T) {
	prefix := append(make([]byte, 0, 64), MustEncode("a")...)
	end := RangeEnd(prefix)
	if want := append(bytes.Clone(prefix), 0xFF); !bytes.Equal(end, want) {
		t.Fatalf("range end % x, want % x", end, want)
	}
	if again := append(prefix, 1); end[len(end)-1] != 0xFF {
		t.Errorf("range end changed with % x", again)
	}
	b := MustEncode([]byte("abc"))
	k, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if got := string(k[0].([]byte)); got != "abc" {
		t.Errorf("decoded element changed to %q", got)
	}
}

func TestEncodeAllocatesOnce(t *testing.T) {
	k := Key{"dwk_alarm_due", "Pod", Millis(1700000000000), "0a\x00", []byte{0, 0}, BigInt(1), true}
	if n := testing.AllocsPerRun(100, func() { k.Encode() }); n != 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	k := Key{"dwk_alarm_due", "Pod", Millis(1700000000000), strings.Repeat("0a", 32)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	enc := MustEncode("dwk_alarm_due", "Pod", Millis(1700000000000), strings.Repeat("0a", 32))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(enc); err != nil {
			b.Fatal(err)
		}
	}
}
