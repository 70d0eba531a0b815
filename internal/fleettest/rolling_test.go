package fleettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A load sends requests of all kinds through a balancer, and knows what they must
// have left.
type load struct {
	t      *testing.T
	front  *Replica // the balancer, in a replica's place
	ledger *Ledger
	pace   time.Duration
	// takes is how long each slow upload and download takes, and large what is
	// downloaded.
	takes time.Duration
	large string

	sent     atomic.Int64
	counters [10]atomic.Int64
	messages atomic.Int64
	alarms   atomic.Int64
	sleeps   atomic.Int64

	mu      sync.Mutex
	failed  []string
	uploads map[string]string // what is stored, by path
	slow    int
}

func newLoad(t *testing.T, url string) *load {
	return &load{
		t: t, front: &Replica{Name: "front", Public: url, t: t}, ledger: NewLedger("rolling"),
		pace: time.Duration(Long(40, 300)) * time.Millisecond, takes: 3 * time.Second,
		large: string(content(0, slowSize)), uploads: map[string]string{},
	}
}

// prepare stores what is downloaded.
func (l *load) prepare(r *Replica) {
	l.t.Helper()
	for _, path := range []string{"note/large", "bucket/large"} {
		if a := r.Do(http.MethodPut, path, l.large); a.Status/100 != 2 {
			l.t.Fatal(a)
		}
	}
}

// run sends requests until at least n were sent and stop is closed. Those of slow
// clients count too.
func (l *load) run(n int64, stop <-chan struct{}) {
	var wg sync.WaitGroup
	goOn := func() bool {
		select {
		case <-stop:
			return l.sent.Load() < n
		default:
			return true
		}
	}
	for worker := range 6 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for goOn() {
				l.sent.Add(1)
				l.one(random)
				time.Sleep(l.pace/2 + time.Duration(random.Int64N(int64(l.pace))))
			}
		})
	}
	for _, kind := range []string{"note", "bucket"} {
		wg.Go(func() {
			for i := 0; goOn(); i++ {
				l.sent.Add(1)
				l.upload(fmt.Sprintf("%s/u%d", kind, i), uint64(i))
			}
		})
		wg.Go(func() {
			for goOn() {
				l.sent.Add(1)
				l.download(kind + "/large")
			}
		})
	}
	wg.Wait()
}

// upload sends 128 KiB slowly, in small pieces.
func (l *load) upload(path string, seed uint64) {
	body := content(seed, 128<<10)
	a := l.front.Upload(l.t.Context(), path, body, l.takes)
	if l.note("upload "+path, a, a.Status/100 == 2) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uploads[path] = string(body)
	}
}

func (l *load) download(path string) {
	a := l.front.Download(l.t.Context(), path, len(l.large), l.takes)
	if a.Status == http.StatusOK && a.Body != l.large {
		a.Err = fmt.Errorf("%d bytes, not those that were stored", len(a.Body))
	}
	l.note("download "+path, a, a.Status == http.StatusOK && a.Err == nil)
}

// note notes what became of a request of a slow client.
func (l *load) note(what string, a Answer, ok bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slow++; !ok {
		l.failed = append(l.failed, fmt.Sprintf("%s: %d, %d bytes, %v (replica %s)", what, a.Status, len(a.Body), a.Err, a.Replica()))
	}
	return ok
}

// one sends one request. Each has a body, so that no proxy takes it for one that
// may be repeated.
func (l *load) one(random *rand.Rand) {
	var a Answer
	what := ""
	switch random.IntN(10) {
	case 0, 1, 2:
		i := random.IntN(len(l.counters))
		what = fmt.Sprintf("counter c%d", i)
		if a = l.front.Post(fmt.Sprintf("counter/c%d/add", i), " "); a.Status == http.StatusOK {
			l.counters[i].Add(1)
		}
	case 3, 4:
		what = "note"
		a = l.ledger.Append(l.front)
	case 5, 6:
		what = "message"
		a = l.front.Post("queue/default/send", fmt.Sprintf(`{"n":%d}`, l.messages.Add(1)-1))
	case 7, 8:
		what = fmt.Sprintf("alarm a%d", l.alarms.Add(1)-1)
		a = send(l.t.Context(), http.MethodPost, l.front.Public+"/lab/alarm/"+what[len("alarm "):]+"?in=700ms", " ")
	default:
		what = fmt.Sprintf("sleep s%d", l.sleeps.Add(1)-1)
		a = send(l.t.Context(), http.MethodPost, l.front.Public+"/lab/note/"+what[len("sleep "):]+"/sleep?ms=1500", " ")
	}
	if a.Status != http.StatusOK {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed = append(l.failed, fmt.Sprintf("%s: %v (replica %s)", what, a, a.Replica()))
	}
}

// check compares what is stored with what was answered.
func (l *load) check(f *Fleet, r *Replica) {
	t := l.t
	t.Helper()
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(l.failed), l.sent.Load(), strings.Join(l.failed[:min(len(l.failed), 20)], "\n"))
	}
	for i := range l.counters {
		var c struct{ Value int64 }
		r.Get(fmt.Sprintf("counter/c%d", i)).Decode(t, &c)
		if want := l.counters[i].Load(); c.Value != want {
			t.Errorf("counter c%d is %d, want %d", i, c.Value, want)
		}
	}
	l.ledger.Check(t, r)
	for i := range l.alarms.Load() {
		if a := r.fired(fmt.Sprintf("a%d", i)); len(a.Attempts) != 1 {
			t.Errorf("alarm a%d was run %d times", i, len(a.Attempts))
		}
	}
	for i := range l.sleeps.Load() {
		if n := len(sleeps(t, r, fmt.Sprintf("s%d", i))); n != 2 {
			t.Errorf("sleep s%d has %d rows, want 2", i, n)
		}
	}
	for path, want := range l.uploads {
		if a := r.Get(path); a.Body != want {
			t.Errorf("%s: %d, %d bytes", path, a.Status, len(a.Body))
		}
	}
	f.waitQuiet()
	if more := wantDelivered(t, r, int(l.messages.Load())); more > 0 {
		t.Errorf("%d messages were delivered again", more)
	}
}

// checkSchedule checks that each occurrence of the schedule was run and finished
// once, from the first to the last.
func checkSchedule(t *testing.T, f *Fleet, every time.Duration) {
	t.Helper()
	list := f.cronHistory()
	checkOccurrences(t, list, every)
	checkOverlaps(t, list)
	count := outcomes(list)
	for outcome, n := range count {
		// A machine that stalls is no fault of a stop's: a run may take longer than it
		// should, and in a short run no poll may come in time.
		if outcome != "ok" && outcome != "skipped" && (outcome != "missed" || Long(1, 0) == 1) {
			t.Errorf("%d runs are %s: %v", n, outcome, count)
		}
	}
	if count["ok"] == 0 {
		t.Error("the schedule has not run")
	}
}

// A front is a load balancer.
type front struct {
	url string
	// env is for the next replica that starts, add is told of it, and ready
	// tells how many get requests.
	env   func() []string
	add   func(*Replica)
	ready func() int
}

// rolling replaces all replicas of a fleet of three, one after the other and each
// in another way, again and again until n requests were sent.
func rolling(t *testing.T, kind Kind, n int, balancer func(*Fleet) front) {
	f := newQueueFleet(t, kind, "batch: 10, concurrency: 2, visibility: 30s")
	// Leases as they are by default: none that a stop leaves ends by itself, and no
	// stall of the machine ends one.
	f.Env = append(f.Env, "DWK_DRAIN_GRACE=4s", "DWK_LEASE_TTL=10s")
	every := time.Duration(Long(5, 2)) * time.Second
	f.setSchedule("@every "+every.String(), 200*time.Millisecond)
	lb := balancer(f)
	join := func() *Replica {
		r := f.Start(lb.env()...)
		lb.add(r)
		return r
	}
	replicas := []*Replica{join(), join(), join()}
	Eventually(t, "the balancer has three replicas", func() bool { return lb.ready() == 3 })
	l := newLoad(t, lb.url)
	l.prepare(replicas[0])
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); l.run(int64(n), stop) }()
	ways := []func(*Replica){
		func(r *Replica) { f.drain(r, 0, "--wait") },
		(*Replica).Terminate,
		func(r *Replica) {
			if a := send(t.Context(), http.MethodPost, r.Admin+"/drain", ""); a.Status != http.StatusAccepted {
				t.Error(a)
			}
		},
	}
	restarts := 0
	for ; restarts < 3 || l.sent.Load() < int64(n); restarts++ {
		old := replicas[0]
		replicas = append(replicas[1:], join())
		Eventually(t, "the balancer has the new replica", func() bool { return lb.ready() == 4 })
		ways[restarts%len(ways)](old)
		wantExit(t, old, 0)
		wantNothingLeft(t, old)
		Eventually(t, "the balancer has noticed", func() bool { return lb.ready() == 3 })
	}
	close(stop)
	<-done
	l.check(f, replicas[0])
	t.Logf("%d requests, %d of them slow, during %d restarts, %d failed", l.sent.Load(), l.slow, restarts, len(l.failed))
	if r := f.Command("drain", "--all", "--wait", "--yes", "--grace", "0s"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	for _, r := range replicas {
		wantExit(t, r, 0)
	}
	wantNoTrace(t, f, "dwk_lease", "dwk_drain", "dwk_replica", "dwk_queue_due", "dwk_queue_dead", "dwk_alarm_due", "dwk_alarm_dead")
	checkSchedule(t, f, every)
	if r := f.Command("audit"); r.Code != 0 {
		t.Errorf("audit: %+v", r)
	}
}

// All replicas are replaced under load, and no request fails.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		rolling(t, kind, Long(5000, 150), func(*Fleet) front {
			b := NewBalancer(t)
			return front{url: b.URL, env: func() []string { return nil }, add: b.Add, ready: b.Ready}
		})
	})
}

// The same behind haproxy, in long runs where it is installed.
func TestRollingRestartBehindHaproxy(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("haproxy")
	if err != nil || Long(1, 0) == 0 {
		t.Skip("a long run with haproxy installed has this")
	}
	const slots = 60
	rolling(t, Wire, 5000, func(f *Fleet) front { return startHaproxy(t, f, path, slots) })
}

// freePorts returns ports that nobody listens on at this moment.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// startHaproxy starts haproxy with room for so many replicas. It repeats no
// request, not even one that could not be delivered.
func startHaproxy(t *testing.T, f *Fleet, path string, slots int) front {
	t.Helper()
	ports := freePorts(t, 2*slots+2)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	config := fmt.Sprintf(`defaults
  mode http
  retries 0
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend replicas
  bind %s
  default_backend replicas
frontend stats
  bind %s
  stats enable
  stats uri /
backend replicas
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
`, at(2*slots), at(2*slots+1))
	for i := range slots {
		config += fmt.Sprintf("  server s%d %s check port %d inter 500ms fall 1 rise 1\n", i, at(2*i), ports[2*i+1])
	}
	file := filepath.Join(f.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-db", "-f", file)
	cmd.Stderr = os.Stderr
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may be gone
		cmd.Wait()         //nolint:errcheck // it was killed
	})
	ready := func() (n int) {
		csv := send(t.Context(), http.MethodGet, "http://"+at(2*slots+1)+"/;csv", "")
		if csv.Status != http.StatusOK {
			return -1
		}
		for line := range strings.Lines(csv.Body) {
			if fields := strings.Split(line, ","); len(fields) > 17 && fields[0] == "replicas" && strings.HasPrefix(fields[1], "s") && strings.HasPrefix(fields[17], "UP") {
				n++
			}
		}
		return n
	}
	Eventually(t, "haproxy has looked at all servers", func() bool { return ready() == 0 }) // to begin with all are up
	next := 0
	return front{
		url: "http://" + at(2*slots),
		env: func() []string {
			if next == slots {
				t.Fatal("haproxy has no room for more replicas")
			}
			next++
			return []string{"DWK_LISTEN=" + at(2*next-2), "DWK_ADMIN_LISTEN=" + at(2*next-1)}
		},
		add:   func(*Replica) {},
		ready: ready,
	}
}
