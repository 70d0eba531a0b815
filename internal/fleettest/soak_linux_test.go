package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// soakBounds are how much each measure may grow from the first to the last third
// of a run, all replicas together. What is not here is shown and not bounded:
// latencies are the machine's as well. Of names that end with a star, which are
// prefixes, the longest one counts.
//
// Some things grow up to a bound of their own: an object has 64 rows in its log
// before they are merged, and more until the upkeep comes by, which takes half an
// hour for all of these, of the four that are large each row with a file; 25 timers keep their last 20 runs each, and a schedule its
// last 1,000 runs. And the lab keeps all that it hears, tens of KB a minute.
var soakBounds = map[string]figures.Bound{
	"resident memory, MiB":      {Share: 0.15, Number: 24},
	"heap in use, MiB":          {Share: 0.25, Number: 12},
	"goroutines":                {Share: 0.10, Number: 30},
	"descriptors":               {Share: 0.10, Number: 30},
	"mirrors, files":            {Share: 0.10, Number: 30},
	"mirrors, MiB":              {Share: 0.20, Number: 8},
	"coordination store, MiB":   {Share: 0.25, Number: 8},
	"object store, log files":   {Number: 300},
	"object store, other files": {Share: 0.10, Number: 5},
	"rows of *":                 {Share: 0.15, Number: 60},
	"rows of obj_log":           {Number: 6500},
	"entries *":                 {Share: 0.15, Number: 60},
	"entries dwk_alarm_run":     {Number: 500},
	"entries dwk_cron*":         {Number: 1000},
}

// TestSoak loads a fleet of three for as long as DWK_SOAK says and fails when
// something grows that must not. DWK_SOAK_OUT names the file of its record.
func TestSoak(t *testing.T) {
	text := os.Getenv("DWK_SOAK")
	if text == "" {
		t.Skip("it takes long; see make soak")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	const retention = 30 * time.Second
	interval := max(length/120, 2*time.Second)
	warm := max(length/4, 2*retention)
	if length < 2*warm {
		t.Fatalf("DWK_SOAK must be at least %v", 4*retention)
	}
	f := New(t, Wire, "DWK_LOG_LEVEL=info", "DWK_OBJECTS_RESIDENT=60", "DWK_OBJECTS_IDLE=20s",
		"DWK_OBJECTS_RETENTION_FULL="+retention.String(), "DWK_OBJECTS_RETENTION_HOURLY="+retention.String())
	f.Env = append(f.Env, "DWK_DATABASE_LAB_DB_URL="+startServer(t, hrana.Config{Path: filepath.Join(f.Dir, "server", "lab.db")}).URL)
	config, env := ownProcess(t)
	f.objects = &config
	f.Env = append(f.Env, env...)
	record := figures.Soak{
		Date: time.Now().UTC().Format(time.DateOnly), Processors: runtime.NumCPU(), Replicas: 3, WarmUp: warm.Seconds(), Interval: interval.Seconds(),
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &record.Load) //nolint:errcheck // 0 then
	}
	s := &soakSampler{t: t, f: f, objects: f.Objects(), samples: map[string][]float64{}}
	for range record.Replicas {
		s.replicas = append(s.replicas, f.Start())
	}
	if s.db, err = libsql.Open(libsql.Config{URL: f.Server.URL}); err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	load := newSoakLoad(t, s.replicas)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	done := make(chan struct{})
	go func() { load.run(ctx); close(done) }()
	began := time.Now()
	for tick := time.NewTicker(interval); ; {
		select {
		case <-tick.C:
			s.sample(time.Since(began), load)
			continue
		case <-done:
		}
		tick.Stop()
		break
	}
	record.Seconds = time.Since(began).Seconds()
	record.Requests, record.Refused, record.Failed = load.ok.Load(), load.refused.Load(), load.failed.Load()
	warmed := 0
	for warmed < len(s.times) && s.times[warmed] < warm.Seconds() {
		warmed++
	}
	for _, name := range slices.Sorted(maps.Keys(s.samples)) {
		trend := figures.NewTrend(name, s.times, s.samples[name], warmed, soakBound(name))
		t.Log(trend)
		if trend.Grows() {
			t.Errorf("grows: %v", trend)
		}
		record.Trends = append(record.Trends, trend)
	}
	t.Logf("%d answered, %d refused, %d failed", record.Requests, record.Refused, record.Failed)
	load.problems.check(t)
	if record.Requests == 0 || record.Failed > record.Requests/1000 {
		t.Errorf("%d of %d requests failed", record.Failed, record.Requests)
	}
	if res := f.Command("audit"); res.Code != 0 {
		t.Errorf("audit: %+v", res)
	}
	writeSoak(t, record)
}

func soakBound(name string) (bound figures.Bound) {
	longest := 0
	for key, b := range soakBounds {
		prefix, ok := strings.CutSuffix(key, "*")
		if (key == name || ok && strings.HasPrefix(name, prefix)) && len(key) > longest {
			bound, longest = b, len(key)
		}
	}
	return bound
}

func writeSoak(t *testing.T, record figures.Soak) {
	t.Helper()
	out := os.Getenv("DWK_SOAK_OUT")
	if out == "" {
		return
	}
	text, err := json.MarshalIndent(record, "", " ")
	if err == nil {
		err = os.WriteFile(out, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// A soakSampler takes samples of all that could grow.
type soakSampler struct {
	t        *testing.T
	f        *Fleet
	replicas []*Replica
	db       *libsql.DB
	objects  durable.Bucket
	times    []float64
	samples  map[string][]float64
}

func (s *soakSampler) sample(at time.Duration, load *soakLoad) {
	defer load.pause()()
	values := load.latencies()
	for _, r := range s.replicas {
		const mib = 1 << 20
		values["resident memory, MiB"] += r.figure("process_resident_memory_bytes") / mib
		values["heap in use, MiB"] += r.figure("go_memstats_heap_inuse_bytes") / mib
		values["goroutines"] += r.figure("go_goroutines")
		values["objects in memory"] += r.figure("dwk_objects_resident")
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
		if err != nil {
			s.t.Fatal(err)
		}
		values["descriptors"] += float64(len(fds))
		files, size := usage(r.Dir())
		values["mirrors, files"] += files
		values["mirrors, MiB"] += size / mib
	}
	s.stores(values)
	s.times = append(s.times, at.Seconds())
	for name, v := range values {
		list := s.samples[name]
		for len(list) < len(s.times)-1 { // it is new
			list = append(list, 0)
		}
		s.samples[name] = append(list, v)
	}
	for name, list := range s.samples { // it is gone
		if len(list) < len(s.times) {
			s.samples[name] = append(list, 0)
		}
	}
	s.t.Logf("%v: memory %.0f MiB, heap %.0f MiB, goroutines %.0f, descriptors %.0f, store %.1f MiB, p50 %.1f ms, p99 %.0f ms", at.Round(time.Second), values["resident memory, MiB"],
		values["heap in use, MiB"], values["goroutines"], values["descriptors"], values["coordination store, MiB"], values["latency p50, ms"], values["latency p99, ms"])
}

// stores adds what the stores hold. Of the database the pages that are in use
// count: a file does not shrink.
func (s *soakSampler) stores(values map[string]float64) {
	query := func(sql string) [][]any {
		res, err := s.db.Batch(s.t.Context(), libsql.Read, libsql.S(sql))
		if err != nil {
			s.t.Fatal(err)
		}
		return res[0].Rows
	}
	number := func(v any) float64 { n, _ := v.(int64); return float64(n) }
	values["coordination store, MiB"] = number(query(`SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`)[0][0]) / (1 << 20)
	for _, row := range query(`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`) {
		name, _ := row[0].(string)
		if name != "kv" && name != "obj_garbage" { // that one is kept for a day
			values["rows of "+name] = number(query(`SELECT count(*) FROM "` + name + `"`)[0][0])
		}
	}
	// Keys are tuples: after a byte for its type comes the name, and a zero.
	for _, row := range query(`SELECT CAST(substr(k, 2, instr(substr(k, 2), x'00') - 1) AS TEXT), count(*) FROM kv GROUP BY 1`) {
		name, _ := row[0].(string)
		values["entries "+name] = number(row[1])
	}
	values["object store, log files"] = -number(query(`SELECT count(*) FROM obj_garbage`)[0][0])
	for opts := (durable.ListOptions{}); ; {
		page, err := s.objects.List(s.t.Context(), opts)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, o := range page.Objects {
			if strings.HasSuffix(o.Key, ".ltx") {
				values["object store, log files"]++
			} else {
				values["object store, other files"]++
			}
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return
		}
	}
}

// usage is what a directory holds, whatever goes away meanwhile.
func usage(dir string) (files, size float64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { //nolint:errcheck // it returns none
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			files, size = files+1, size+float64(info.Size())
		}
		return nil
	})
	return files, size
}
