package proto

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkMessage compares the parser with another one, that is made of
// encoding/json and the rules of message.go: both take the same messages, and
// find the same in them.
func checkMessage(t interface{ Fatalf(string, ...any) }, in []byte) (taken bool) {
	got, err := ParseMessage(in)
	want, werr := slowMessage(in)
	if (err == nil) != (werr == nil) {
		t.Fatalf("%s:\n%v, and encoding/json %v", in, err, werr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n%s, and encoding/json\n%s", in, dump(got), dump(want))
	}
	return err == nil
}

func dump(m *Message) string {
	b, err := json.Marshal(m)
	return fmt.Sprint(string(b), err)
}

// messages are some that a client may send, and others.
var messages = []struct {
	in string
	ok bool
}{
	{`{}`, true},
	{`{"baton":null,"requests":[],"batch":null}`, true},
	{` { "requests" : [ { "type" : "close" } , { "type" : "get_autocommit", "of": {"a":[1,{"b":[]}]} } ] } `, true},
	{`{"requests":[{"type":"execute","stmt":{"sql":"SELECT ?","args":[{"type":"integer","value":"9223372036854775807"}],"want_rows":false,"replication_index":"1"}}]}`, true},
	{`{"requests":[{"stmt":{"args":[{"value":"x","type":"text"},{"type":"null"},{"base64":"AQ==","type":"blob"},{"type":"float","value":-1.5e-3}],"sql_id":-1},"type":"execute"}]}`, true},
	{`{"requests":[{"type":"execute","stmt":{"sql":"\u0053\/\ud83d\ude00\n","named_args":[{"name":":a","value":{"type":"null"}}]}}]}`, true},
	{`{"batch":{"steps":[{"stmt":{"sql":"a"}},{"condition":{"type":"and","conds":[{"type":"not","cond":{"type":"ok","step":0}},{"type":"is_autocommit"}]},"stmt":{"sql":"a"}}]}}`, true},
	{`{"requests":[{"type":"store_sql","sql_id":7,"sql":"x"},{"type":"sequence","sql_id":7}],"baton":"b"}`, true},
	{`{"type":1,"Requests":7,"\u0062aton":"b"}`, true},
	{``, false}, {`null`, false}, {`[]`, false}, {`{`, false}, {`{}x`, false}, {`{},`, false}, {`{"a"}`, false}, {`{"a":}`, false}, {`{"a":1,}`, false}, {`{,}`, false},
	{`{"baton":1}`, false}, {`{"baton":"a","baton":"a"}`, false}, {`{"baton":"\ud800"}`, false}, {"{\"baton\":\"\xff\"}", false}, {"{\"a\":\"\n\"}", false}, {`{"a":"\x"}`, false},
	{`{"requests":{}}`, false}, {`{"requests":[null]}`, false}, {`{"requests":[{}]}`, false}, {`{"requests":[{"type":null}]}`, false}, {`{"requests":[{"type":"close"},]}`, false},
	{`{"requests":[{"type":"x","sql_id":2147483648}]}`, false}, {`{"requests":[{"type":"x","sql_id":1.0}]}`, false}, {`{"requests":[{"type":"x","sql_id":"1"}]}`, false}, {`{"requests":[{"type":"x","sql_id":01}]}`, false},
	{`{"requests":[{"type":"x","stmt":{"args":[{"type":"integer","value":1}]}}]}`, false}, {`{"requests":[{"type":"x","stmt":{"args":[null]}}]}`, false}, {`{"requests":[{"type":"x","stmt":{"args":{}}}]}`, false},
	{`{"requests":[{"type":"x","stmt":{"named_args":[{"name":"a"}]}}]}`, false}, {`{"requests":[{"type":"x","stmt":{"want_rows":1}}]}`, false}, {`{"requests":[{"type":"x","stmt":{"args":[{"type":"text","value":"a","value":"b"}]}}]}`, false},
	{`{"batch":{"steps":[{}]}}`, false}, {`{"batch":{"steps":[{"stmt":null}]}}`, false}, {`{"batch":{"steps":[{"stmt":{},"condition":{}}]}}`, false}, {`{"batch":{"steps":[{"stmt":{},"condition":{"type":"ok","step":1e0}}]}}`, false},
	{`{"a":` + strings.Repeat(`[`, maxDepth-1) + strings.Repeat(`]`, maxDepth-1) + `}`, true}, {`{"a":` + strings.Repeat(`[`, maxDepth) + strings.Repeat(`]`, maxDepth) + `}`, false},
	{strings.Repeat(`{"a":`, 1<<20), false}, {`{"a":-}`, false}, {`{"a":1.}`, false}, {`{"a":1e}`, false}, {`{"a":.1}`, false}, {`{"a":tru}`, false}, {`{"a":"`, false}, {`{"a":"\`, false}, {`{"a":"\"`, false},
}

func TestParseMessage(t *testing.T) {
	for _, m := range messages {
		if taken := checkMessage(t, []byte(m.in)); taken != m.ok {
			t.Errorf("%.200s: taken %t", m.in, taken)
		}
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m.in[:min(len(m.in), 1000)]))
	}
	f.Fuzz(func(t *testing.T, in []byte) { checkMessage(t, in) })
}

// TestParseMessageLike makes messages of all members in all orders and forms,
// some of them with a mistake.
func TestParseMessageLike(t *testing.T) {
	taken, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g := &maker{t: t, bad: rapid.IntRange(0, 3).Draw(t, "bad") == 0}
		in := []byte(g.message())
		if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
			in[rapid.IntRange(0, len(in)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		ok := checkMessage(t, in)
		if all++; ok {
			taken++
		}
	})
	if t.Logf("%d of %d were messages", taken, all); all >= 50 && (taken < all/4 || taken == all) {
		t.Error("the messages prove little")
	}
}

// TestParseMessageSharesNothing: what was read stays when the memory of the
// message is used for another one.
func TestParseMessageSharesNothing(t *testing.T) {
	for _, m := range messages {
		if !m.ok {
			continue
		}
		in := []byte(m.in)
		got, err := ParseMessage(in)
		if err != nil {
			t.Fatal(err)
		}
		before := dump(got)
		for i := range in {
			in[i] = '#'
		}
		if after := dump(got); after != before {
			t.Errorf("%s became %s", before, after)
		}
	}
}

// TestParseMessageMemory: no message takes much more memory than it has bytes.
func TestParseMessageMemory(t *testing.T) {
	for _, in := range []string{
		`{"requests":[` + strings.Repeat(`{"type":"x"},`, 20000) + `{"type":"x"}]}`,
		`{"batch":{"steps":[` + strings.Repeat(`{"stmt":{}},`, 20000) + `{"stmt":{}}]}}`,
		`{"batch":{"steps":[{"stmt":{},"condition":{"type":"or","conds":[` + strings.Repeat(`{"type":"x"},`, 20000) + `{"type":"x"}]}}]}}`,
		`{"batch":{"steps":[{"stmt":{"args":[` + strings.Repeat(`{"type":"null"},`, 20000) + `{"type":"null"}]}}` + strings.Repeat(`,{"stmt":{"args":[{"type":"null"}]}}`, 20000) + `]}}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseMessage([]byte(in))
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		// With what lists were before they grew.
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(50*len(in)) {
			t.Errorf("%.80s... of %d bytes took %d", in, len(in), n)
		} else {
			t.Logf("%.80s... of %d bytes took %d", in, len(in), n)
		}
	}
}
