package tuple

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestParseAccepts(t *testing.T) {
	for _, c := range []struct {
		text string
		want Key
	}{
		{" [ \"a\" ,\n1e3 ] ", Key{"a", 1000.0}},
		{`["\ud83d\ude00\\ud800\ufffd"]`, Key{"😀\\ud800\uFFFD"}},
		{`[-0.0, 1.5e300]`, Key{math.Copysign(0, -1), 1.5e300}},
		{`[-9007199254740992]`, Key{-math.Ldexp(1, 53)}},
		{`[9.007199254740994e15]`, Key{math.Ldexp(1, 53) + 2}},
		{`[{"$int":"-7"}, {"$bytes":"AA=="}]`, Key{BigInt(-7), []byte{0}}},
	} {
		if got, err := Parse(c.text); err != nil || !same(got, c.want) {
			t.Errorf("%s: %#v, %v; want %#v", c.text, got, err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{``, "key is not a JSON array"},
		{`null`, "key is not a JSON array"},
		{`"a"`, "key is not a JSON array"},
		{`dwk_lease`, "key is not a JSON array"},
		{`["a"`, "key is not valid JSON"},
		{`["a"] x`, "key is not valid JSON"},
		{"[\"\xff\"]", "key text is not valid UTF-8"},
		{`["` + strings.Repeat("a", MaxText) + `"]`, "key text of 65540 bytes is longer than 65536"},
		{`["a",null]`, "key element 1: null is no key element"},
		{`[["a"]]`, "key element 0: an array is no key element"},
		{`[1e400]`, "key element 0: number 1e400 is out of range"},
		{`[9007199254740993]`, `key element 0: integer 9007199254740993 may not be exact as a number: write {"$int":"9007199254740993"}`},
		{`[99999999999999999999]`, "key element 0: integer 99999999999999999999 may not"},
		{`["\ud800"]`, "key element 0: string has half of a surrogate pair"},
		{`["\ud800\ud800"]`, "key element 0: string has half of a surrogate pair"},
		{`["\ud83d\n"]`, "key element 0: string has half of a surrogate pair"},
		{`["a\\\udc00"]`, "key element 0: string has half of a surrogate pair"},
		{`[{}]`, "key element 0: an object must be"},
		{`[{"$int":1}]`, "key element 0: an object must be"},
		{`[{"$int":"1","$int":"2"}]`, "key element 0: an object must be"},
		{`[{"$int":"1","$bytes":""}]`, "key element 0: an object must be"},
		{`[{"$int":"9223372036854775808"}]`, "key element 0: $int"},
		{`[{"$bytes":"AAE"}]`, "key element 0: $bytes is not padded"},
		{`[{"$bytes":"AB=="}]`, "key element 0: $bytes is not padded"},
		{`[{"$bytes":"AA\n=="}]`, "key element 0: $bytes is not padded"},
		{`[{"$number":"NaN"}]`, `key element 0: $number "NaN" is neither`},
		{`[{"$uuid":""}]`, `key element 0: unknown kind of element "$uuid"`},
	} {
		if k, err := Parse(c.text); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.40q: %v, error %v; want %q", c.text, k, err, c.want)
		}
	}
}

func TestJSONField(t *testing.T) {
	type entry struct {
		Key Key `json:"key"`
	}
	in := entry{Key{"<a>", BigInt(1), []byte{0}, math.Inf(1)}}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out entry
	if err := json.Unmarshal(text, &out); err != nil || !same(out.Key, in.Key) {
		t.Errorf("%s read as %v, %v", text, out.Key, err)
	}
	if err := json.Unmarshal([]byte(`{"key":[null]}`), &out); err == nil {
		t.Error("a null element was accepted")
	}
}
