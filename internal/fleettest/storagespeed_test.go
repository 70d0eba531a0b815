package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A speedTarget is a server whose speed is measured.
type speedTarget struct {
	name string
	pid  int
	// urls are the stores of some accounts, and tokens let in to them.
	urls, tokens []string
}

const speedAccounts = 100

// TestStorageSpeed reports how many documents of 1 KB are put and got in a second,
// in one account and over a hundred, and the fsyncs of a put, of this server and of
// armadietto beside each other. It demands nothing of the machine. DWK_BENCH_ARMADIETTO
// is a directory with armadietto in its node_modules, DWK_BENCH_PROGRAM the program
// to measure.
func TestStorageSpeed(t *testing.T) {
	packages := os.Getenv("DWK_BENCH_ARMADIETTO")
	if packages == "" {
		t.Skip("it measures; see make bench-remotestorage")
	}
	targets := []speedTarget{startOurs(t), startArmadietto(t, packages)}
	results, costs := map[string][]float64{}, map[string][]time.Duration{}
	for _, c := range []struct {
		what, method string
		accounts     int
	}{{"put", http.MethodPut, 1}, {"get", http.MethodGet, 1}, {"put", http.MethodPut, speedAccounts}, {"get", http.MethodGet, speedAccounts}} {
		if c.method == http.MethodPut {
			for _, target := range targets {
				target.each(t.Context(), t, http.MethodPut, c.accounts, speedWorkers, int64(c.accounts*(speedDocuments+1)))
			}
		}
		for range 2 { // the better of two, in turn
			for i, target := range targets {
				rate, cost := target.measure(t, c.method, c.accounts, 4*time.Second)
				key := fmt.Sprintf("%s, %d accounts", c.what, c.accounts)
				if results[key] == nil {
					results[key], costs[key] = make([]float64, len(targets)), make([]time.Duration, len(targets))
				}
				t.Logf("%s: %s: %.0f a second, processor %v a request", key, target.name, rate, cost)
				if rate > results[key][i] {
					results[key][i], costs[key][i] = rate, cost
				}
			}
		}
	}
	for _, what := range []string{"put, 1 accounts", "get, 1 accounts", "put, 100 accounts", "get, 100 accounts"} {
		r, c := results[what], costs[what]
		t.Logf("%-18s %6.0f a second, armadietto %6.0f: %.1f times; processor %v a request, armadietto %v: %.1f times", what, r[0], r[1], r[0]/r[1], c[0], c[1], float64(c[1])/float64(c[0]))
	}
	for _, target := range targets {
		t.Logf("%s: fsyncs a put, one at a time: %s, 16 at a time: %s", target.name, target.fsyncs(t, 1), target.fsyncs(t, 16))
	}
}

func startOurs(t *testing.T) speedTarget {
	f, r, _ := newStorage(t, File, "{}", "DWK_LOG_LEVEL=info")
	if program := os.Getenv("DWK_BENCH_PROGRAM"); program != "" {
		r.Terminate()
		r.Wait()
		f.Program = program
		r = f.Start()
	}
	target := speedTarget{name: "dwk", pid: r.cmd.Process.Pid, urls: make([]string, speedAccounts), tokens: make([]string, speedAccounts)}
	var wg sync.WaitGroup
	next := make(chan int)
	for range 4 {
		wg.Go(func() {
			for i := range next {
				name := fmt.Sprintf("user%d", i)
				var made struct{ Token string }
				f.JSON(&made, "app", "remotestorage", "create", name)
				f.JSON(&made, "app", "remotestorage", "token", name, "*:rw")
				target.urls[i], target.tokens[i] = r.Public+"/rs/store/"+name, made.Token
			}
		})
	}
	for i := range speedAccounts {
		next <- i
	}
	close(next)
	wg.Wait()
	return target
}

func startArmadietto(t *testing.T, packages string) speedTarget {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	text, err := json.Marshal(map[string]any{
		"host_identity": "127.0.0.1", "basePath": "", "allow_signup": true, "storage_path": filepath.Join(dir, "store"), "lock_timeout_ms": 30000, "lock_stale_after_ms": 60000, "cache_views": true,
		"http": map[string]any{"host": "127.0.0.1", "port": port}, "https": map[string]any{"enable": false},
		"logging": map[string]any{"log_dir": filepath.Join(dir, "log"), "stdout": []string{}, "log_files": []string{"error"}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "conf.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", filepath.Join(packages, "node_modules/armadietto/bin/armadietto.js"), "-c", filepath.Join(dir, "conf.json"))
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	dieWithParent(cmd)
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // it may have ended
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	target := speedTarget{name: "armadietto", pid: cmd.Process.Pid}
	Eventually(t, "armadietto starts", func() bool { return send(t.Context(), http.MethodGet, base+"/", "").Status == http.StatusOK })
	const form = "application/x-www-form-urlencoded"
	for i := range speedAccounts {
		name := fmt.Sprintf("user%d", i)
		if a := send(t.Context(), http.MethodPost, base+"/signup", url.Values{"username": {name}, "email": {name + "@a.example"}, "password": {"correct horse"}}.Encode(), "Content-Type", form); a.Status != http.StatusCreated {
			t.Fatalf("signup: %v", a)
		}
		a := send(t.Context(), http.MethodPost, base+"/oauth", url.Values{
			"username": {name}, "password": {"correct horse"}, "client_id": {"http://a.example"}, "redirect_uri": {"http://a.example/"}, "response_type": {"token"}, "scope": {"m:rw"}, "allow": {"Allow"},
		}.Encode(), "Content-Type", form)
		_, fragment, _ := strings.Cut(a.Header.Get("Location"), "#")
		q, err := url.ParseQuery(fragment)
		if err != nil || q.Get("access_token") == "" {
			t.Fatalf("oauth: %v %v", a, a.Header)
		}
		target.urls, target.tokens = append(target.urls, base+"/storage/"+name), append(target.tokens, q.Get("access_token"))
	}
	return target
}

const speedWorkers, speedDocuments = 16, 10

// each sends requests with some workers until ctx ends or n were sent, and
// returns how many succeeded.
func (s speedTarget) each(ctx context.Context, t *testing.T, method string, accounts, workers int, n int64) int64 {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers, DisableCompression: true}}
	defer c.CloseIdleConnections()
	body := strings.Repeat("0123456789abcdef", 64)
	var sent, done atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := sent.Add(1)
				if n > 0 && i > n {
					return
				}
				at := int(i) % accounts
				var r io.Reader
				if method == http.MethodPut {
					r = strings.NewReader(body)
				}
				req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("%s/m/d%d", s.urls[at], int(i)/accounts%speedDocuments), r)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+s.tokens[at])
				req.Header.Set("Content-Type", "text/plain")
				resp, err := c.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body) //nolint:errcheck // the status counts
				resp.Body.Close()
				if resp.StatusCode/100 != 2 {
					t.Errorf("%s: %s %s: %s", s.name, method, req.URL.Path, resp.Status)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load()
}

// measure returns requests a second, of a server that has all documents, and the
// processor's time of each in the server, which is the same on a busy machine.
func (s speedTarget) measure(t *testing.T, method string, accounts int, d time.Duration) (rate float64, cost time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	began, used := time.Now(), processorTime(t, s.pid)
	n := s.each(ctx, t, method, accounts, speedWorkers, 0)
	cost = (processorTime(t, s.pid) - used) / time.Duration(max(n, 1))
	return float64(n) / time.Since(began).Seconds(), cost.Round(time.Microsecond)
}

// processorTime is what a process has used, in ticks of 10 ms.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := firstError(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

var straceLine = regexp.MustCompile(`(?m)^\s*[0-9.]+\s+[0-9.]+\s+[0-9]+\s+([0-9]+)\s+(?:[0-9]+\s+)?f(?:data)?sync$`)

// fsyncs counts the fsyncs of a put with strace.
func (s speedTarget) fsyncs(t *testing.T, workers int) string {
	t.Helper()
	const puts = 320
	out := filepath.Join(t.TempDir(), "strace")
	cmd := exec.Command("strace", "-f", "-c", "-o", out, "-e", "trace=fsync,fdatasync", "-p", strconv.Itoa(s.pid))
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "not counted: " + err.Error()
	}
	stderr.Read(make([]byte, 1)) //nolint:errcheck // it says when it is attached
	time.Sleep(time.Second)
	s.each(t.Context(), t, http.MethodPut, 1, workers, puts)
	cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // it may have ended
	io.Copy(io.Discard, stderr)        //nolint:errcheck // until it ends
	cmd.Wait()                         //nolint:errcheck // it ends by a signal
	text, err := os.ReadFile(out)
	if err != nil {
		return "not counted: " + err.Error()
	}
	total := 0
	for _, m := range straceLine.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[1])
		total += n
	}
	return fmt.Sprintf("%.2f", float64(total)/puts)
}
