package proto

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestParseValue(t *testing.T) {
	for in, want := range map[string]any{
		`{"type":"null"}`:                                             nil,
		` { "type" : "null" , "value" : null } `:                      nil,
		`{"type":"integer","value":"-9223372036854775808"}`:           int64(math.MinInt64),
		`{"type":"integer","value":9007199254740993}`:                 int64(9007199254740993),
		`{"value":"7","type":"integer"}`:                              int64(7),
		`{"type":"float","value":-1.5e300}`:                           -1.5e300,
		`{"type":"float","value":3}`:                                  3.0,
		`{"type":"text","value":"a\u00fc\ud83d\ude00\"\\\/\n\u0000"}`: "aü😀\"\\/\n\x00",
		`{"type":"text","value":""}`:                                  "",
		`{"type":"blob","base64":""}`:                                 []byte{},
		`{"type":"blob","base64":"AQ"}`:                               []byte{1},
		`{"type":"blob","base64":"AQ=="}`:                             []byte{1},
		`{"type":"blob","base64":"AQI="}`:                             []byte{1, 2},
	} {
		var v Value
		if err := json.Unmarshal([]byte(in), &v); err != nil || !reflect.DeepEqual(v.V, want) {
			t.Errorf("%s: %#v, %v", in, v.V, err)
		}
	}
	for _, in := range []string{
		`null`, `1`, `"x"`, `[]`, `{}`, `{"type":null}`, `{"type":"date"}`, `{"type":["null"]}`,
		`{"type":"integer"}`, `{"type":"integer","value":null}`, `{"type":"integer","value":1.0}`, `{"type":"integer","value":"1e3"}`,
		`{"type":"integer","value":"+1"}`, `{"type":"integer","value":""}`, `{"type":"integer","value":"9223372036854775808"}`,
		`{"type":"float"}`, `{"type":"float","value":null}`, `{"type":"float","value":"1"}`, `{"type":"float","value":1e999}`,
		`{"type":"float","value":{"a":1}}`,
		`{"type":"text"}`, `{"type":"text","value":null}`, `{"type":"text","value":5}`, `{"type":"text","value":"\ud800"}`,
		`{"type":"text","value":"\ude00\ud83d"}`, "{\"type\":\"text\",\"value\":\"\xff\"}",
		`{"type":"blob"}`, `{"type":"blob","base64":null}`, `{"type":"blob","base64":"A"}`, `{"type":"blob","base64":"AR"}`,
		`{"type":"blob","base64":"AQ="}`, `{"type":"blob","base64":"AQ==="}`, `{"type":"blob","base64":"A-_A"}`, `{"type":"blob","base64":"AQ\n="}`,
	} {
		v := Value{V: "untouched"}
		if err := v.UnmarshalJSON([]byte(in)); err == nil {
			t.Errorf("%s was read as %#v", in, v.V)
		}
	}
	if v, err := argument([]byte(`{"type":"integer","value":1}`)); err == nil {
		t.Errorf("an argument that is an integer as a JSON number was taken for %#v", v)
	}
}

// parseValue reads a value as a server writes it, or as a client does.
func parseValue(in []byte, numbers bool) (any, error) {
	s := scanner{in: in}
	v, err := s.value(numbers)
	if err == nil {
		err = s.end()
	}
	return v, err
}

func argument(in []byte) (any, error) { return parseValue(in, false) }

func TestValueRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(
			rapid.Int64().AsAny(),
			rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).AsAny(),
			rapid.String().Filter(utf8.ValidString).AsAny(),
			rapid.SliceOf(rapid.Byte()).AsAny(),
			rapid.Just[any](nil),
		).Draw(t, "v")
		if b, ok := v.([]byte); ok && b == nil {
			v = []byte{}
		}
		b, err := AppendValue(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		a, err := argument(b)
		if err != nil || !reflect.DeepEqual(a, v) {
			t.Fatalf("%#v became %s and then %#v, %v", v, b, a, err)
		}
		if f, ok := v.(float64); ok && math.Signbit(f) != math.Signbit(a.(float64)) {
			t.Fatal("a sign was lost")
		}
		if s, ok := v.(string); ok {
			var std string
			if err := json.Unmarshal(AppendString(nil, s), &std); err != nil || std != s {
				t.Fatalf("encoding/json reads %q as %q, %v", s, std, err)
			}
		}
	})
	for _, v := range []any{math.NaN(), math.Inf(-1), "\xff", 1, true} {
		if _, err := AppendValue(nil, v); err == nil {
			t.Errorf("%#v was written", v)
		}
	}
}

func FuzzParseValue(f *testing.F) {
	f.Add([]byte(`{"type":"text","value":"a\u00fc"}`))
	f.Add([]byte(`{"type":"blob","base64":"AQ=="}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := parseValue(in, true)
		if err != nil {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q is not JSON and was read as %#v", in, v)
		}
		out, err := AppendValue(nil, v)
		if err != nil {
			t.Fatalf("%s was read as %#v, which has no form: %v", in, v, err)
		}
		if again, err := parseValue(out, true); err != nil || !reflect.DeepEqual(again, v) {
			t.Fatalf("%s: %#v, then %#v", in, v, again)
		}
	})
}

// TestParseRow: a list that is cut or goes on is none.
func TestParseRow(t *testing.T) {
	for _, in := range []string{`[{"type":"null"},]`, `[{"type":"null",}]`, `[{"type":"null"}`, `[{"type":"null"}{"type":"null"}]`, `[]]`, `[,{"type":"null"}]`,
		`[{"type":"float","value":1}]x`, `["\"]`, `[{"type":"text","value":"`, `[{"":"\\\"`, `{`, ``, `[`, `[{}]`, `[null]`, `[{"type":"null"]`} {
		if v, err := ParseRow([]byte(in)); err == nil {
			t.Errorf("%s was read as %#v", in, v)
		}
	}
}

// FuzzParseRow: what is JSON is read as its values are apart.
func FuzzParseRow(f *testing.F) {
	for _, s := range []string{`[]`, `null`, `[{"type":"null"}]`, ` [ {"type":"text","value":"a\"\\"} , {"value":"7","type":"integer"} ] `, `[{"type":"blob","base64":"AQ=="}]`, `[1]`, `{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := ParseRow(in)
		if !json.Valid(in) {
			if err == nil {
				t.Fatalf("%q is not JSON and was read as %#v", in, got)
			}
			return
		}
		var apart []Value
		want := json.Unmarshal(in, &apart)
		if (err == nil) != (want == nil) {
			t.Fatalf("%s: %v, apart %v", in, err, want)
		}
		if err == nil && len(got) != len(apart) {
			t.Fatalf("%s: %d values, apart %d", in, len(got), len(apart))
		}
		for i := range got {
			if err == nil && !reflect.DeepEqual(got[i], apart[i].V) {
				t.Fatalf("%s: %#v, apart %#v", in, got, apart)
			}
		}
	})
}
