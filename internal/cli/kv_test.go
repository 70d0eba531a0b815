package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

type entryOut struct {
	Key          json.RawMessage
	Value        json.RawMessage
	Versionstamp string
	ExpiresAt    *int64 `json:"expires_at"`
}

func eachStore(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Run("file", func(t *testing.T) { test(t, newFixture(t)) })
	t.Run("wire", func(t *testing.T) { test(t, newWireFixture(t)) })
}

func TestSetGetDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var set, got entryOut
		f.json(&set, "kv", "set", `["a",1,{"$int":"7"}]`, `{"x": [1, 9007199254740993]}`, "--yes")
		f.json(&got, "kv", "get", `["a",1,{"$int":"7"}]`)
		if !reflect.DeepEqual(set, got) || string(got.Key) == "" || got.ExpiresAt != nil || len(got.Versionstamp) != 20 {
			t.Errorf("set %+v, got %+v", set, got)
		}
		var value bytes.Buffer
		if err := json.Compact(&value, got.Value); err != nil || value.String() != `{"x":[1,9007199254740993]}` {
			t.Errorf("value %s", got.Value)
		}
		if out := f.ok("kv", "get", `["a",1,{"$int":"7"}]`); out != "key           [\"a\",1,{\"$int\":\"7\"}]\nvalue         {\"x\":[1,9007199254740993]}\nversionstamp  "+got.Versionstamp+"\nexpires       never\n" {
			t.Error(out)
		}
		f.fails(exitFailed, got.Versionstamp+"|nothing was changed", "kv", "set", `["a",1,{"$int":"7"}]`, "2", "--if-absent", "--yes")
		f.fails(exitFailed, got.Versionstamp, "kv", "set", `["a",1,{"$int":"7"}]`, "2", "--if-version", "1", "--yes")
		f.ok("kv", "set", `["a",1,{"$int":"7"}]`, "2", "--if-version", got.Versionstamp, "--yes")
		f.fails(exitFailed, "nothing was changed", "kv", "delete", `["a",1,{"$int":"7"}]`, "--if-version", got.Versionstamp, "--yes")
		f.fails(exitFailed, "is not there", "kv", "set", `["b"]`, "2", "--if-version", got.Versionstamp, "--yes")
		f.fails(exitUsage, "--yes", "kv", "delete", `["a",1,{"$int":"7"}]`)
		f.ok("kv", "delete", `["a",1,{"$int":"7"}]`, "--yes")
		f.fails(exitNotFound, "no entry", "kv", "get", `["a",1,{"$int":"7"}]`)
		f.fails(exitNotFound, "no entry", "kv", "delete", `["a",1,{"$int":"7"}]`, "--yes")

		var timed entryOut
		f.json(&timed, "kv", "set", `["t"]`, "1", "--if-absent", "--ttl", "1h", "--yes")
		now, err := f.stores.KV.Now(t.Context())
		if err != nil || timed.ExpiresAt == nil || *timed.ExpiresAt-now.UnixMilli() > time.Hour.Milliseconds() || *timed.ExpiresAt <= now.UnixMilli() {
			t.Errorf("expires %v, %v", timed.ExpiresAt, err)
		}
		var stored entryOut
		f.json(&stored, "kv", "get", `["t"]`)
		if *stored.ExpiresAt != *timed.ExpiresAt {
			t.Errorf("set says %d, get says %d", *timed.ExpiresAt, *stored.ExpiresAt)
		}
	})
}

func TestValueFromStdin(t *testing.T) {
	f := newFixture(t)
	r := execute(t.Context(), Options{Args: []string{"kv", "set", `["a"]`, "-", "--yes"}, In: strings.NewReader("{\n \"b\": 1 }\n"), Environ: f.environ})
	if r.code != 0 || !strings.Contains(r.out, `{"b":1}`) {
		t.Error(r)
	}
	r = execute(t.Context(), Options{Args: []string{"kv", "set", `["a"]`, "-", "--yes"}, In: io.LimitReader(zeros{}, 2*maxValue), Environ: f.environ})
	f.failed(r, exitUsage, "larger than")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}

// meanwhile types an answer after something else has happened.
type meanwhile struct {
	act    func()
	answer io.Reader
}

func (m *meanwhile) Read(b []byte) (int, error) {
	if m.act != nil {
		m.act()
		m.act = nil
	}
	return m.answer.Read(b)
}

func TestSetAsksAboutWhatIsThere(t *testing.T) {
	f := newFixture(t)
	r := f.ask(strings.NewReader("n\n"), "kv", "set", `["dwk_queue_pause","x"]`, "1")
	if r.code != exitFailed || !strings.Contains(r.err, "belongs to the fleet") || !strings.Contains(r.err, "nothing was changed") {
		t.Error(r)
	}
	f.fails(exitNotFound, "", "kv", "get", `["dwk_queue_pause","x"]`)
	if r := f.ask(strings.NewReader("y\n"), "kv", "set", `["a"]`, "1"); r.code != 0 || !strings.Contains(r.err, "not there now") || strings.Contains(r.err, "belongs to the fleet") {
		t.Error(r)
	}
	if r := f.ask(strings.NewReader("y\n"), "kv", "set", `["a"]`, "2"); r.code != 0 || !strings.Contains(r.err, "over 1 (versionstamp ") {
		t.Error(r)
	}
	change := &meanwhile{func() { f.ok("kv", "set", `["a"]`, "3", "--yes") }, strings.NewReader("y\n")}
	if r := f.ask(change, "kv", "set", `["a"]`, "4"); r.code != exitFailed || !strings.Contains(r.err, "nothing was changed") {
		t.Error(r)
	}
	change = &meanwhile{func() { f.ok("kv", "set", `["a"]`, "5", "--yes") }, strings.NewReader("y\n")}
	if r := f.ask(change, "kv", "delete", `["a"]`); r.code != exitFailed || !strings.Contains(r.err, "nothing was changed") {
		t.Error(r)
	}
	if out := f.ok("kv", "get", `["a"]`); !strings.Contains(out, "value         5\n") {
		t.Error(out)
	}
	if r := f.ask(strings.NewReader("y\n"), "kv", "delete", `["a"]`); r.code != 0 {
		t.Error(r)
	}
}

// fill stores n entries [prefix, 0] to [prefix, n-1].
func fill(t *testing.T, f *fixture, prefix string, n int, ttl time.Duration) {
	t.Helper()
	const batch = 2000
	for at := 0; at < n; at += batch {
		p := kv.NewPlan()
		for i := at; i < min(at+batch, n); i++ {
			p.Set(tuple.MustEncode(prefix, float64(i)), fmt.Sprintf(`{"n":%d,"html":"<&>"}`, i), ttl)
		}
		if _, err := f.stores.KV.Commit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}

// expire has all entries of a prefix expire.
func expire(t *testing.T, f *fixture, prefix string) {
	t.Helper()
	k := tuple.MustEncode(prefix)
	if _, err := f.stores.DB.Batch(t.Context(), libsql.Write, libsql.S(`UPDATE kv SET expires_at = 1 WHERE k >= ? AND k < ?`, k, tuple.RangeEnd(k))); err != nil {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		fill(t, f, "a", 5, 0)
		fill(t, f, "ab", 2, 0)
		fill(t, f, "gone", 3, time.Hour)
		expire(t, f, "gone")
		for _, tt := range []struct {
			args []string
			want string
		}{
			{[]string{"--prefix", `["a"]`}, `["a",0]["a",1]["a",2]["a",3]["a",4]`},
			{[]string{"--prefix", `["a"]`, "--reverse", "--limit", "2"}, `["a",4]["a",3]`},
			{[]string{"--start", `["a",3]`, "--end", `["ab",1]`}, `["a",3]["a",4]["ab",0]`},
			{[]string{"--prefix", `["ab"]`, "--limit", "2"}, `["ab",0]["ab",1]`},
			{[]string{"--prefix", `["gone"]`}, ``},
			{[]string{"--limit", "0"}, `["a",0]["a",1]["a",2]["a",3]["a",4]["ab",0]["ab",1]["dwk_meta","mode"]["dwk_meta","store"]`},
			{[]string{"--limit", "1"}, `["a",0]`},
		} {
			var entries []entryOut
			f.json(&entries, append([]string{"kv", "list"}, tt.args...)...)
			got := ""
			for _, e := range entries {
				got += string(e.Key)
			}
			if got != tt.want {
				t.Errorf("%v: %s", tt.args, got)
			}
		}
		if r := f.run("kv", "list", "--prefix", `["a"]`, "--limit", "2"); strings.Count(r.out, "\n") != 3 || !strings.Contains(r.err, "more entries than 2") {
			t.Error(r)
		}
		for _, args := range [][]string{{"--limit", "5"}, {"--limit", "2", "-q"}} {
			if r := f.run(append([]string{"kv", "list", "--prefix", `["a"]`}, args...)...); r.err != "" {
				t.Errorf("%v: %s", args, r.err)
			}
		}
	})
}

// What is stored cannot steer the terminal.
func TestTablesAreHarmless(t *testing.T) {
	f := newFixture(t)
	f.ok("kv", "set", `["\u001b[31m\u009b"]`, `"`+strings.Repeat("x", 200)+"\u202e\u009b\"", "--yes")
	out := f.ok("kv", "list")
	if strings.ContainsAny(out, "\x1b\u009b\u202e") || !strings.Contains(out, "…") {
		t.Errorf("%q", out)
	}
}

// checkDump verifies a dump and returns its entries' keys.
func checkDump(t *testing.T, dump string) (header dumpHeader, keys []string) {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(dump, "\n"), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &header); err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, line := range lines[1 : len(lines)-1] {
		io.WriteString(sum, line)
		var e entryOut
		if err := json.Unmarshal([]byte(line), &e); err != nil || len(e.Versionstamp) != 20 {
			t.Fatal(line, err)
		}
		keys = append(keys, string(e.Key))
	}
	var trailer dumpTrailer
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &trailer); err != nil {
		t.Fatal(err)
	}
	if trailer.Entries != len(lines)-2 || trailer.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		t.Errorf("trailer %+v of %d entries", trailer, len(lines)-2)
	}
	return header, keys
}

func TestDump(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		fill(t, f, "a", 3, time.Hour)
		fill(t, f, "gone", 3, time.Hour)
		expire(t, f, "gone")
		header, keys := checkDump(t, f.ok("kv", "dump"))
		if header.Format != dumpFormat || len(header.StoreID) != 36 || header.TakenAt == 0 || header.Prefix.String() != "[]" {
			t.Errorf("%+v", header)
		}
		if want := []string{`["a",0]`, `["a",1]`, `["a",2]`, `["dwk_meta","mode"]`, `["dwk_meta","store"]`}; !slices.Equal(keys, want) {
			t.Error(keys)
		}
		out := f.ok("kv", "dump", `["a"]`)
		header, keys = checkDump(t, out)
		if len(keys) != 3 || header.Prefix.String() != `["a"]` || !strings.Contains(out, "<&>") {
			t.Error(out)
		}

		path := filepath.Join(t.TempDir(), "x.jsonl")
		r := f.run("kv", "dump", `["a"]`, "--output-file", path)
		b, err := os.ReadFile(path)
		if r.code != 0 || r.out != "" || !strings.Contains(r.err, "wrote 3 entries") || err != nil {
			t.Error(r, err)
		}
		checkDump(t, string(b))
	})
}

// A dump that fails leaves the file that was there.
func TestDumpToFileIsAtomic(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.jsonl")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.stores.DB.Batch(t.Context(), libsql.Write, libsql.S(`INSERT INTO kv VALUES (?, 'not json', 1, NULL)`, tuple.MustEncode("bad"))); err != nil {
		t.Fatal(err)
	}
	f.fails(exitFailed, `["bad"]|not JSON`, "kv", "dump", "--output-file", path)
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v", left)
	}
	f.fails(exitFailed, "/does/not/exist", "kv", "dump", "--output-file", "/does/not/exist/x")
	if r := f.run("kv", "dump"); r.code != exitFailed || strings.Contains(r.out, "sha256") {
		t.Errorf("a failed dump has a trailer: %+v", r)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestOutputThatFails(t *testing.T) {
	f := newFixture(t)
	for _, args := range []string{"kv dump", "kv list", "kv list -o json", "kv stats", "kv get [\"dwk_meta\",\"mode\"]", "lease list", "config show", "version", "probe"} {
		var stderr bytes.Buffer
		code := Run(t.Context(), Options{Args: strings.Fields(args), In: strings.NewReader(""), Out: failingWriter{}, Err: &stderr, Environ: f.environ})
		if code != exitFailed || !strings.Contains(stderr.String(), "disk full") {
			t.Errorf("dwk %s: exit %d, %s", args, code, stderr.String())
		}
	}
}

// peak measures the memory in use from time to time as a dump passes by.
type peak struct {
	lines   int
	highest uint64
}

func (p *peak) Write(b []byte) (int, error) {
	before := p.lines / 5000
	p.lines += bytes.Count(b, []byte("\n"))
	if p.lines/5000 != before {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		p.highest = max(p.highest, m.HeapAlloc)
	}
	return len(b), nil
}

func TestDumpMemoryDoesNotGrow(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		n := 50_000
		if testing.Short() {
			n = 10_000
		}
		fill(t, f, "a", n, 0)
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var p peak
		if code := Run(t.Context(), Options{Args: []string{"kv", "dump"}, Out: &p, Err: io.Discard, Environ: f.environ}); code != 0 || p.lines != n+4 {
			t.Fatalf("exit %d, %d lines", code, p.lines)
		}
		// The entries together are about 150 bytes times n.
		if grown := int64(p.highest) - int64(before.HeapAlloc); grown > 2<<20 {
			t.Errorf("%d bytes more in use", grown)
		}
	})
}

func TestSweep(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		fill(t, f, "gone", 25, time.Hour)
		fill(t, f, "live", 5, time.Hour)
		expire(t, f, "gone")
		for _, tt := range []struct {
			args string
			want swept
		}{
			{"kv sweep --dry-run", swept{DryRun: true, Left: 25}},
			{"kv sweep --batch 4 --max 10", swept{Removed: 10, Batches: 3, Left: 15}},
			{"kv sweep --batch 5 --yes", swept{Removed: 15, Batches: 4}},
			{"kv sweep", swept{Batches: 1}},
		} {
			var got swept
			f.json(&got, strings.Fields(tt.args)...)
			if got != tt.want {
				t.Errorf("%s: %+v", tt.args, got)
			}
		}
		if out := f.ok("kv", "list", "--prefix", `["live"]`); strings.Count(out, "\n") != 6 {
			t.Error(out)
		}
	})
}

func TestSweepInterrupted(t *testing.T) {
	f := newFixture(t)
	fill(t, f, "gone", 20_000, time.Hour)
	expire(t, f, "gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan result)
	go func() {
		done <- execute(ctx, Options{Args: []string{"kv", "sweep", "--batch", "1"}, Environ: f.environ})
	}()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		n, err := f.stores.KV.CountExpired(t.Context())
		if err == nil && n < 20_000 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Error("nothing was removed within a minute", err)
			break
		}
	}
	cancel(interrupted{syscall.SIGINT})
	if r := <-done; r.code != exitInterrupted || !strings.Contains(r.err, "interrupted: removed ") || r.out != "" {
		t.Error(r)
	}
}

func TestStats(t *testing.T) {
	f := newFixture(t)
	fill(t, f, "a", 3, 0)
	fill(t, f, "gone", 2, time.Hour)
	expire(t, f, "gone")
	f.ok("kv", "set", "[1]", "1", "--yes")
	var got []prefixStat
	f.json(&got, "kv", "stats")
	if len(got) != 4 || got[0].Prefix != "a" || got[0].Rows != 3 || got[0].Expired != 0 || got[1].Prefix != "dwk_meta" ||
		got[2].Prefix != "gone" || got[2].Expired != 2 || got[3].Prefix != "(other)" || got[3].Bytes != 10 {
		t.Errorf("%+v", got)
	}
	lines := strings.Split(f.ok("kv", "stats"), "\n")
	if want := strings.Fields("total 8"); !slices.Equal(strings.Fields(lines[5])[:2], want) {
		t.Error(lines)
	}
}

// A random dump is read back line by line as it was stored.
func TestDumpKeepsEveryKindOfKey(t *testing.T) {
	f := newFixture(t)
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	p := kv.NewPlan()
	for i := range 500 {
		key := tuple.Key{float64(i)}
		for range r.IntN(4) {
			key = append(key, []any{"s\x00é\u2028", []byte{0, 255, byte(i)}, tuple.BigInt(r.Int64()), r.Float64() - 0.5, r.IntN(2) == 0}[r.IntN(5)])
		}
		value := []string{`null`, `"\u2028<>"`, `{"a":[1.0,1e400]}`, `12345678901234567890`}[r.IntN(4)]
		p.Set(tuple.MustEncode(key...), value, 0)
		want[string(tuple.MustEncode(key...))] = value
	}
	if _, err := f.stores.KV.Commit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(strings.NewReader(f.ok("kv", "dump")))
	n := 0
	for scan.Scan() {
		var e struct {
			Key   tuple.Key
			Value json.RawMessage
		}
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil || e.Key == nil {
			continue
		}
		k, err := e.Key.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if value, ok := want[string(k)]; ok {
			if n++; value != string(e.Value) {
				t.Errorf("%s: %s, stored %s", e.Key, e.Value, value)
			}
		}
	}
	if n != len(want) {
		t.Errorf("%d of %d entries", n, len(want))
	}
}
