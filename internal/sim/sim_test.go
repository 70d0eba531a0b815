package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bubble's time begins in the year 2000, before any that a due index holds.
const fromTheYear2000 = 25 * 365 * 24 * time.Hour

// run runs one scenario and returns what was wrong, and its trace.
func run(t *testing.T, seed uint64) (name string, broken, trace []string) {
	p := profiles[seed%uint64(len(profiles))]
	db := takePrimary(t)
	dir, err := os.MkdirTemp("", "dwk-sim-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of the machine's temporary files
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(fromTheYear2000)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		r := rand.New(rand.NewPCG(seed, 1))
		s := &scenario{
			t: t, seed: seed, profile: p, primary: db, dir: dir, began: time.Now(), ctx: ctx, rng: r,
			objects: []string{"c", "a", "b", "z"}[:p.objects], names: map[string]string{}, alarms: map[string][]*alarmRun{}, mails: map[string][]*delivery{},
		}
		db.skew = time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour // P8
		for _, name := range s.objects {
			id := durable.IDFromName(name).String()
			s.names[id] = name
			db.object(classOf(name), id)
		}
		s.play(r)
		broken, trace = s.broken, s.trace
	})
	db.giveBack(t)
	return p.name, broken, trace
}

// play is a scenario from its first replica to the last check.
func (s *scenario) play(r *rand.Rand) {
	for range s.profile.replicas {
		s.join()
	}
	s.hostile.Store(!s.profile.calm())
	harm, stop := context.WithCancel(s.ctx)
	var harming, clients sync.WaitGroup
	harming.Go(func() { s.harm(harm, rand.New(rand.NewPCG(s.seed, 2))) })
	count, each := 3, 8
	switch {
	case s.profile.busy:
		count = 6
	case s.profile.slow:
		count, each = 2, 6
	}
	for n := range count {
		clients.Go(func() { s.client(n, each, rand.New(rand.NewPCG(s.seed, uint64(10+n)))) })
	}
	clients.Wait()
	stop()
	harming.Wait()
	s.hostile.Store(false)
	s.tell("nothing goes wrong any more")
	s.heal()
	s.check()
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.stop(s.ctx)
	}
	s.dying.Wait()
	s.flying.Wait()
}

// heal waits until nothing is left to be done.
func (s *scenario) heal() {
	time.Sleep(4 * ttl) // what was late has come, and what was about to die is dead
	s.joining.Wait()
	for range 300 {
		time.Sleep(time.Second)
		if s.pick(0) != nil && s.pending() == "" {
			return
		}
	}
	s.wrong("left undone: " + s.pending())
}

// pending tells what is to be done still.
func (s *scenario) pending() string {
	var out []string
	for _, prefix := range []string{alarm.SlotPrefix, alarm.DuePrefix, queue.PrefixDue} {
		lo := tuple.MustEncode(prefix)
		res, _, _ := s.primary.run("", []libsql.Statement{libsql.S(`SELECT v FROM kv WHERE k >= ? AND k < ?`, lo, tuple.RangeEnd(lo))}, 0, false)
		for _, row := range res[0].Rows {
			out = append(out, fmt.Sprint(prefix, " ", row[0]))
		}
	}
	return strings.Join(out, "; ")
}

// dead returns the dead letters of a kind.
func (s *scenario) dead(prefix string) (keys []tuple.Key, values []string) {
	lo := tuple.MustEncode(prefix)
	res, _, _ := s.primary.run("", []libsql.Statement{libsql.S(`SELECT k, v FROM kv WHERE k >= ? AND k < ?`, lo, tuple.RangeEnd(lo))}, 0, false)
	for _, row := range res[0].Rows {
		k, _ := tuple.Decode(row[0].([]byte))
		keys, values = append(keys, k), append(values, row[1].(string))
	}
	return keys, values
}

// number reads a variable.
func number(t *testing.T, name string, or uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(name, err)
	}
	return n
}

// TestSimulation runs scenarios of many seeds, one after the other on each
// processor, for a while. DWK_SIM_SEED begins elsewhere, DWK_SIM_TIME has it go
// on for longer, and DWK_SIM_RUNS ends it after so many. With DWK_SIM_REPLAY it is
// one seed, with its trace, again and again until it fails: the order of what
// happens at the same moment is not the seed's.
func TestSimulation(t *testing.T) {
	if seed := number(t, "DWK_SIM_REPLAY", 0); seed != 0 {
		replay(t, seed)
		return
	}
	during := 20 * time.Second
	if testing.Short() {
		during = 5 * time.Second
	}
	if text := os.Getenv("DWK_SIM_TIME"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		during = d
	}
	runs, first, end := number(t, "DWK_SIM_RUNS", math.MaxUint64), number(t, "DWK_SIM_SEED", 1)*1_000_000, time.Now().Add(during)
	var next atomic.Uint64
	var failed atomic.Bool
	var wg sync.WaitGroup
	for n := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				for !failed.Load() && time.Now().Before(end) {
					i := next.Add(1) - 1
					if i >= runs {
						return
					}
					seed := first + i
					if name, broken, _ := run(t, seed); broken != nil {
						failed.Store(true)
						t.Errorf("seed %d, %s:\n%s\nAgain: DWK_SIM_REPLAY=%d go test -count=1 -run TestSimulation ./internal/sim", seed, name, strings.Join(broken[:min(len(broken), 10)], "\n"), seed)
					}
				}
			})
		})
	}
	wg.Wait()
	t.Logf("%d scenarios", next.Load())
}

func replay(t *testing.T, seed uint64) {
	for i := range 100 {
		name, broken, trace := run(t, seed)
		if broken != nil {
			t.Fatalf("seed %d, %s, at the %d. time:\n%s\n\n%s", seed, name, i+1, strings.Join(trace, "\n"), strings.Join(broken, "\n"))
		}
	}
}
