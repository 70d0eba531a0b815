package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/apps"
	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/term"
)

func TestBenchWrongUsage(t *testing.T) {
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + t.TempDir()}}
	for args, words := range map[string]string{
		"":                                                      "--embedded, --target URL or --stores",
		"--embedded --stores":                                   "--embedded and --stores do not go together",
		"--embedded --target http:/":                            "do not go together",
		"--embedded x":                                          "unexpected argument",
		"--embedded --mix commits":                              "counters",
		"--embedded --mix nonsense":                             "nonsense",
		"--embedded --objects 0":                                "number of objects",
		"--embedded --clients 0":                                "number of clients",
		"--embedded --duration 0s":                              "duration",
		"--embedded --requests 0":                               "--requests",
		"--embedded --rate 0.5":                                 "--rate",
		"--embedded --rate nan":                                 "--rate",
		"--embedded --warmup -1s":                               "--warmup",
		"--embedded --replicas 0":                               "--replicas",
		"--embedded --store s3":                                 "--store must be file or wire",
		"--embedded --latency 5ms":                              "--latency goes with --store wire only",
		"--embedded --dir /does/not/exist --requests 1":         "--dir",
		"--embedded --cpuprofile a --requests 5":                "--duration",
		"--stores --mix counters":                               "--mix does not go with --stores",
		"--stores --replicas 2":                                 "--replicas goes with --embedded only",
		"--stores --cpuprofile a":                               "--cpuprofile goes with --embedded only",
		"--target http://localhost:1/lab --latency 1s":          "--latency goes with --embedded only",
		"--target http://localhost:1/lab --disk-baseline":       "--disk-baseline does not go with --target",
		"--target localhost:8080":                               "not the URL of a lab",
		"--target http://localhost:1/lab --mix notes --seed -1": "--seed",
	} {
		code := exitUsage
		if strings.Contains(args, "--dir") {
			code = exitFailed
		}
		f.fails(code, words, append([]string{"bench"}, strings.Fields(args)...)...)
	}
}

// benchEnv runs a fleet in this process, on a store in dir.
func benchFleetFor(t *testing.T, o benchOptions, dir string) *benchFleet {
	t.Helper()
	e := &env{opts: Options{Apps: apps.All()}, term: term.New(strings.NewReader(""), t.Output(), t.Output(), func(string) string { return "" })}
	o.inProcess = true
	f, err := startBenchFleet(t.Context(), e, o, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// What the load says that it has done, and nothing else, was done.
func TestBenchCountsExactly(t *testing.T) {
	for _, store := range []string{"file", "wire"} {
		t.Run(store, func(t *testing.T) {
			o := benchOptions{
				load:     bench.Load{Mix: bench.Counters, Objects: 7, Clients: 6, Requests: 200, Seed: 4},
				replicas: 2, store: store,
			}
			f := benchFleetFor(t, o, t.TempDir())
			e := &env{term: term.New(strings.NewReader(""), t.Output(), t.Output(), func(string) string { return "" })}
			r, err := f.load(t.Context(), e, o)
			if err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for i := range o.load.Objects {
				sum += counter(t, fmt.Sprintf("%s/lab/counter/bench-4-%d", f.replicas[i%2].public, i))
			}
			if r.Requests != 200 || r.OK != sum || r.OK == 0 || r.Disk != nil {
				t.Errorf("the counters are at %d; %+v", sum, r)
			}
			if len(r.Replicas) != 2 || r.Replicas[0].Requests+r.Replicas[1].Requests != 200 {
				t.Errorf("by replica: %+v", r.Replicas)
			}
			// An increment needs no more than an acquire and a commit; the rest is polls.
			if r.RoundTripsPerEvent == nil || *r.RoundTripsPerEvent <= 0 || *r.RoundTripsPerEvent > 3 {
				t.Errorf("round trips an event: %v", r.RoundTripsPerEvent)
			}
		})
	}
}

func counter(t *testing.T, url string) int64 {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct{ Value int64 }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return v.Value
}

func TestBenchEmbedded(t *testing.T) {
	dir := t.TempDir()
	profile := filepath.Join(dir, "cpu")
	f := &fixture{t: t, environ: []string{"DWK_LIBSQL_URL=http://127.0.0.1:1"}} // which plays no part
	args := []string{"bench", "--embedded", "--in-process", "--dir", dir, "--objects", "3", "--clients", "2", "--requests", "40", "--warmup", "1ms"}
	var r map[string]any
	f.json(&r, append(args, "--mix", "mixed", "--store", "wire", "--latency", "1ms", "--rate", "1000", "--cpuprofile", profile)...)
	for _, key := range []string{
		"subject", "store", "mix", "objects", "clients", "seed", "rate", "elapsed_ms", "requests", "ok", "errors", "unsent", "throughput", "latency", "kinds",
		"replicas", "round_trips", "round_trips_per_event", "disk", "left",
	} {
		if _, ok := r[key]; !ok {
			t.Errorf("no %s in %v", key, r)
		}
	}
	if r["subject"] != "embedded" || r["store"] != "wire" || r["requests"] != 40.0 || r["rate"] != 1000.0 || len(r["left"].([]any)) > 0 {
		t.Errorf("%v", r)
	}
	disk := r["disk"].(map[string]any)
	if rate, ratio := disk["transactions_per_second"].(float64), disk["ratio"].(float64); rate <= 0 || ratio <= 0 {
		t.Errorf("disk: %v", disk)
	}
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v", err)
	}
	out := f.ok(append(args, "--disk-baseline=false")...)
	for _, want := range []string{"counters on 3 objects, 2 clients, closed loop", "throughput", "answered 100.0%", "LATENCY", "increment"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if strings.Contains(out, "disk") {
		t.Errorf("the disk was measured: %s", out)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "dwk-bench-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Replicas of their own are processes of this program.
func TestBenchProcesses(t *testing.T) {
	dir := t.TempDir()
	f := &fixture{t: t, environ: append(os.Environ(), "DWK_TEST_MAIN=1", "DWK_LEASE_TTL=nonsense", "PORT=1")}
	var r benchReport
	f.json(&r, "bench", "--embedded", "--dir", dir, "--replicas", "2", "--objects", "4", "--requests", "60", "--warmup", "0s", "--mix", "reads", "--disk-baseline=false")
	if r.OK != 60 || r.Rate != nil || r.Disk != nil || r.RoundTrips == nil || len(r.Replicas) != 2 {
		t.Errorf("%+v", r)
	}
	for _, s := range r.Replicas {
		if s.MaxRSS < 1<<20 || s.CPUMs <= 0 || s.Share <= 0 || s.Share >= 1 {
			t.Errorf("%+v", s)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestBenchIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	r := execute(ctx, Options{Args: strings.Fields("bench --embedded --in-process --duration 1h --dir " + dir), Environ: []string{}})
	if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "deadline exceeded") {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestBenchTarget(t *testing.T) {
	dir := t.TempDir()
	fleet := benchFleetFor(t, benchOptions{replicas: 2, store: "file"}, dir)
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + filepath.Join(dir, "data")}}
	args := []string{"bench", "--requests", "30", "--warmup", "0s", "--objects", "5", "--target", fleet.replicas[0].public + "/lab", "--target", fleet.replicas[1].public + "/lab"}
	f.fails(exitUsage, "no terminal to ask on|--yes", args...)
	f.failed(f.ask(strings.NewReader("n\n"), args...), exitFailed, "Load the target?|not confirmed", args...)
	var r benchReport
	f.json(&r, append(args, "--yes")...)
	if r.Subject != "target" || r.OK != 30 || len(r.Replicas) != 2 || len(r.Left) != 1 || r.Left[0] != "objects named bench-1-0 to bench-1-4" {
		t.Errorf("%+v", r)
	}
	// What a bench has left is in no bench's way. What others have is.
	f.json(&r, append(args, "--yes")...)
	post(t, fleet.replicas[0].public+"/lab/counter/mine/add")
	f.fails(exitFailed, "holds 1 objects that are no bench's (Counter/mine)|--i-know-this-store-has-data", append(args, "--yes")...)
	f.fails(exitFailed, "no bench's", append(args, "--i-know-this-store-has-data")...)
	f.json(&r, append(args, "--yes", "--i-know-this-store-has-data")...)
	// Nobody knows what is behind a target when the configuration is another's.
	f.environ = []string{"DWK_DATA_DIR=" + t.TempDir()}
	f.fails(exitFailed, "is not known|--i-know-this-store-has-data", append(args, "--yes")...)
	f.json(&r, append(args, "--yes", "--i-know-this-store-has-data", "--mix", "notes")...)
}

func post(t *testing.T, url string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

func TestBenchStores(t *testing.T) {
	for name, f := range map[string]*fixture{"file": newFixture(t), "wire": newWireFixture(t)} {
		t.Run(name, func(t *testing.T) {
			args := []string{"bench", "--stores", "--requests", "50", "--warmup", "0s", "--clients", "3"}
			f.fails(exitUsage, "--yes", args...)
			before := f.ok("kv", "list", "-o", "json")
			var r benchReport
			f.json(&r, append(args, "--yes")...)
			if r.Subject != "stores" || r.Mix != "commits" || r.OK != 50 || r.RoundTrips == nil || *r.RoundTrips != 50 || len(r.Left) > 0 {
				t.Errorf("%+v", r)
			}
			if after := f.ok("kv", "list", "-o", "json"); after != before {
				t.Errorf("before %s, after %s", before, after)
			}
			if name == "wire" {
				f.fails(exitUsage, "disk of http", append(args, "--yes", "--disk-baseline")...)
			}
		})
	}
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + t.TempDir()}}
	f.fails(exitNotFound, "no replica has ever run", "bench", "--stores", "--yes")
}

func TestBenchWithoutSuccess(t *testing.T) {
	f := newFixture(t)
	f.fails(exitFailed, "100 of 100 objects could not be created: connection refused", "bench", "--target", "http://127.0.0.1:1/lab", "--yes", "--duration", "10ms")
}

func TestReplicasTakeNoSettings(t *testing.T) {
	got := withoutSettings([]string{"PATH=/bin", "DWK_LIBSQL_URL=x", "DWK_CONFIG=x", "PORT=1", "HOST=h", "DWK_TEST_MAIN=1", "GOMAXPROCS=1"})
	if fmt.Sprint(got) != "[PATH=/bin DWK_TEST_MAIN=1 GOMAXPROCS=1]" {
		t.Error(got)
	}
}
