package chaos

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/hrana"
)

// A fault is something that may befall a fleet.
type fault struct {
	// slot is set when it befalls one replica, starts when that has a successor,
	// and alone when nothing else may befall the fleet meanwhile.
	slot, starts, alone bool
	weight              int
	// lasts draws how long it lasts.
	lasts func(r *rand.Rand, ttl time.Duration) time.Duration
	// do returns when it is over.
	do func(w *world, s *slot, st step)
}

// moment is for faults that take no time of their own.
func moment(*rand.Rand, time.Duration) time.Duration { return 0 }

// between draws a time.
func between(from, to time.Duration) func(*rand.Rand, time.Duration) time.Duration {
	return func(r *rand.Rand, _ time.Duration) time.Duration {
		return (from + time.Duration(r.Int64N(int64(to-from)))).Round(time.Millisecond)
	}
}

// beyond draws a time that is longer than a lease, shorter one that is not.
func beyond(r *rand.Rand, ttl time.Duration) time.Duration {
	return (ttl + 200*time.Millisecond + time.Duration(r.Int64N(int64(time.Second)))).Round(time.Millisecond)
}

func shorter(r *rand.Rand, _ time.Duration) time.Duration {
	return (100*time.Millisecond + time.Duration(r.Int64N(int64(900*time.Millisecond)))).Round(time.Millisecond)
}

// faults are all there are, by their names.
var faults = map[string]fault{}

func init() {
	faults = map[string]fault{
		"killed":                         {slot: true, starts: true, weight: 6, lasts: moment, do: (*world).kill},
		"stopped shorter than the lease": {slot: true, weight: 3, lasts: shorter, do: (*world).stop},
		"stopped longer than the lease":  {slot: true, weight: 4, lasts: beyond, do: (*world).stop},
		"link to libSQL cut":             {slot: true, weight: 4, lasts: beyond, do: (*world).cutSQL},
		"link to libSQL slow":            {slot: true, weight: 2, lasts: between(time.Second, 2*time.Second), do: sqlFlow(crawls)},
		"requests to libSQL late":        {slot: true, weight: 3, lasts: between(time.Second, 3*time.Second), do: sqlFlow(holdsUp)},
		"answers of libSQL late":         {slot: true, weight: 3, lasts: between(time.Second, 3*time.Second), do: sqlFlow(holdsDown)},
		"answers of libSQL lost":         {weight: 4, lasts: between(500*time.Millisecond, 1500*time.Millisecond), do: (*world).loseAnswers},
		"libSQL busy":                    {weight: 2, lasts: between(300*time.Millisecond, 1200*time.Millisecond), do: (*world).busySQL},
		"libSQL restarted":               {weight: 3, lasts: between(50*time.Millisecond, 800*time.Millisecond), do: (*world).restartSQL},
		"link to S3 cut":                 {slot: true, weight: 2, lasts: between(time.Second, 2*time.Second), do: objFlow(cut)},
		"link to S3 slow":                {slot: true, weight: 1, lasts: between(time.Second, 2*time.Second), do: objFlow(crawls)},
		"answers of S3 late":             {slot: true, weight: 1, lasts: between(time.Second, 4*time.Second), do: objFlow(holdsDown)},
		"answers of S3 lost":             {weight: 2, lasts: between(300*time.Millisecond, time.Second), do: (*world).loseObjects},
		"S3 busy":                        {weight: 2, lasts: between(300*time.Millisecond, 1500*time.Millisecond), do: (*world).busyS3},
		"disk full":                      {slot: true, weight: 1, lasts: between(500*time.Millisecond, 1500*time.Millisecond), do: (*world).fillDisk},
		"mirrors deleted":                {slot: true, weight: 2, lasts: between(20*time.Millisecond, 200*time.Millisecond), do: (*world).deleteMirrors},
		"mirrors damaged":                {slot: true, starts: true, weight: 2, lasts: moment, do: (*world).damageMirrors},
		"another clock":                  {slot: true, starts: true, alone: true, weight: 2, lasts: moment, do: (*world).drain},
		"drained":                        {slot: true, starts: true, alone: true, weight: 4, lasts: moment, do: (*world).drain},
		"rolling restart":                {alone: true, weight: 1, lasts: moment, do: (*world).roll},
		"fleet down":                     {alone: true, starts: true, weight: 1, lasts: between(300*time.Millisecond, 1500*time.Millisecond), do: (*world).fleetDown},
		"lease released":                 {weight: 3, lasts: between(500*time.Millisecond, 1500*time.Millisecond), do: (*world).release},
		"queue redriven":                 {weight: 1, lasts: moment, do: (*world).redrive},
		"store swept":                    {weight: 1, lasts: moment, do: (*world).sweep},
		"log merged":                     {weight: 2, lasts: moment, do: (*world).merge},
		"object restored":                {alone: true, weight: 2, lasts: moment, do: (*world).restore},
	}
}

// befall runs the steps of the plan.
func (w *world) befall() {
	var wg sync.WaitGroup
	for i, st := range w.plan.steps {
		if !st.beside {
			wg.Wait()
		}
		if !w.sleep(st.pause) {
			break
		}
		f := faults[st.fault]
		if f.alone {
			wg.Wait()
		}
		w.Logf("%2d %v", i+1, st)
		wg.Go(func() {
			s := w.slots[st.slot]
			if f.slot {
				s.busy.Lock()
				defer s.busy.Unlock()
			}
			w.note(func(r *figures.Robustness) { r.Faults[st.fault]++ })
			w.fault.begin(st.fault)
			defer w.fault.end(st.fault)
			f.do(w, s, st)
			w.sleep(300 * time.Millisecond) // what it did to calls under way is its doing
		})
	}
	wg.Wait()
}

// kill kills a replica that is working at something, and starts another.
func (w *world) kill(s *slot, st step) {
	h := w.hold(s, holdFor)
	r, _ := s.get()
	s.put(r, false)
	w.end(r)
	at := time.Now()
	r.Kill()
	var wg sync.WaitGroup
	wg.Go(func() { w.takeOver(h, at, func(t *figures.Takeovers) *[]int64 { return &t.Kill }) })
	w.join(s, st.shift)
	wg.Wait()
}

// held is how long a replica works at something when it is stopped or cut off:
// for longer than that, or until the midst of it, so that it wants to commit as
// soon as it can.
func held(st step) time.Duration {
	if st.seed%2 == 0 {
		return holdFor
	}
	return st.lasts / 2
}

// stop stops a replica and lets it go on. When that is longer than a lease
// another one takes over meanwhile, and its own write must come to nothing.
func (w *world) stop(s *slot, st step) {
	r, _ := s.get()
	long := st.lasts > w.plan.TTL
	var h *hold
	if long {
		h = w.hold(s, held(st))
	}
	at := time.Now()
	r.Stop()
	s.put(r, false)
	var wg sync.WaitGroup
	if long {
		wg.Go(func() { w.takeOver(h, at, func(t *figures.Takeovers) *[]int64 { return &t.Stop }) })
	}
	w.sleep(st.lasts)
	if long {
		wg.Wait() // it goes on when another has written
	}
	r.Continue()
	s.put(r, true)
	if long {
		w.note(func(r *figures.Robustness) { r.StaleAttempts++ })
	}
}

// cutSQL cuts a replica off from the database.
func (w *world) cutSQL(s *slot, st step) {
	h := w.hold(s, held(st))
	at := time.Now()
	s.sql.set(cut)
	s.lab.set(cut)
	var wg sync.WaitGroup
	wg.Go(func() { w.takeOver(h, at, func(t *figures.Takeovers) *[]int64 { return &t.Cut }) })
	w.sleep(st.lasts)
	wg.Wait()
	s.sql.set(passes)
	s.lab.set(passes)
	w.note(func(r *figures.Robustness) { r.StaleAttempts++ })
}

func sqlFlow(f flow) func(*world, *slot, step) {
	return func(w *world, s *slot, st step) {
		s.sql.set(f)
		s.lab.set(f)
		w.sleep(st.lasts)
		s.sql.set(passes)
		s.lab.set(passes)
	}
}

func objFlow(f flow) func(*world, *slot, step) {
	return func(w *world, s *slot, st step) {
		s.obj.set(f)
		w.sleep(st.lasts)
		s.obj.set(passes)
	}
}

// hook sets what befalls the requests to both servers, for a while.
func (w *world) hook(d time.Duration, hook func(context.Context, hrana.Request) hrana.Fault) {
	w.fleet.Server.SetHook(hook)
	w.lab.SetHook(hook)
	w.sleep(d)
	w.fleet.Server.SetHook(nil)
	w.lab.SetHook(nil)
}

func (w *world) loseAnswers(_ *slot, st step) {
	w.hook(st.lasts, func(ctx context.Context, _ hrana.Request) hrana.Fault {
		switch rand.IntN(10) {
		case 0:
			return hrana.Fault{CutBefore: true}
		case 1, 2:
			return hrana.Fault{CutAfter: true}
		case 3:
			return hrana.Fault{Status: http.StatusBadGateway}
		case 4: // late, while others go on
			sleep(ctx, 20*time.Millisecond)
		}
		return hrana.Fault{}
	})
}

func (w *world) busySQL(_ *slot, st step) {
	w.hook(st.lasts, func(context.Context, hrana.Request) hrana.Fault {
		switch rand.IntN(3) {
		case 0:
			return hrana.Fault{Status: http.StatusTooManyRequests}
		case 1:
			return hrana.Fault{Status: http.StatusServiceUnavailable}
		}
		return hrana.Fault{}
	})
}

func (w *world) restartSQL(_ *slot, st step) {
	w.fleet.Server.Restart(st.lasts)
	w.lab.Restart(st.lasts / 4)
}

func (w *world) objects3(d time.Duration, choose func() storeFault) {
	w.storeFault.Store(&choose)
	w.sleep(d)
	w.storeFault.Store(nil)
}

func (w *world) loseObjects(_ *slot, st step) {
	w.objects3(st.lasts, func() storeFault { return []storeFault{noFault, lost, lost}[rand.IntN(3)] })
}

func (w *world) busyS3(_ *slot, st step) {
	w.objects3(st.lasts, func() storeFault { return []storeFault{busy, many, noFault}[rand.IntN(3)] })
}

// skip notes that something could not be done here.
func (w *world) skip(st step) {
	w.note(func(r *figures.Robustness) {
		if r.Faults[st.fault]--; r.Faults[st.fault] == 0 {
			delete(r.Faults, st.fault)
		}
		r.Skipped[st.fault]++
	})
}

func (w *world) fillDisk(s *slot, st step) {
	if s.disk == "" {
		w.skip(st)
		return
	}
	ballast := filepath.Join(s.disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return // it is full
	}
	io.Copy(f, zeros{}) //nolint:errcheck // until it is full
	f.Close()           //nolint:errcheck // it is full
	w.sleep(st.lasts)
	if err := os.Remove(ballast); err != nil {
		w.Errorf("make room again: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// mirrorFiles are the files of the databases that a replica has.
func mirrorFiles(r *fleettest.Replica) []string {
	files, _ := filepath.Glob(filepath.Join(r.Dir(), "objects", "*", "*"))
	return files
}

// stopped does something to a replica that stands still.
func (w *world) stopped(s *slot, st step, do func(*fleettest.Replica, *rand.Rand)) {
	r, _ := s.get()
	r.Stop()
	do(r, rand.New(rand.NewPCG(st.seed, 2)))
	w.sleep(st.lasts)
	r.Continue()
}

func (w *world) deleteMirrors(s *slot, st step) {
	w.stopped(s, st, func(r *fleettest.Replica, random *rand.Rand) {
		if random.IntN(4) == 0 {
			os.RemoveAll(filepath.Join(r.Dir(), "objects")) //nolint:errcheck // what is left is left
			return
		}
		for _, f := range mirrorFiles(r) {
			if random.IntN(2) == 0 {
				os.Remove(f) //nolint:errcheck // likewise
			}
		}
	})
}

// damageMirrors kills a replica and flips bits in the files that it leaves, which
// its successor must not take for its own.
func (w *world) damageMirrors(s *slot, st step) {
	r, _ := s.get()
	s.put(r, false)
	w.end(r)
	r.Kill()
	random := rand.New(rand.NewPCG(st.seed, 2))
	for _, f := range mirrorFiles(r) {
		flip(f, random)
	}
	w.join(s, st.shift)
}

// flip changes one bit of a file.
func flip(path string, random *rand.Rand) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return
	}
	at, b := random.Int64N(info.Size()), make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return
	}
	b[0] ^= 1 << random.IntN(8)
	f.WriteAt(b, at) //nolint:errcheck // then it is as it was
}

// fleetDown kills all replicas, and starts others.
func (w *world) fleetDown(_ *slot, st step) {
	for _, s := range w.slots {
		r, _ := s.get()
		s.put(r, false)
		w.end(r)
		r.Kill()
	}
	w.sleep(st.lasts)
	var wg sync.WaitGroup
	for _, s := range w.slots {
		wg.Go(func() { w.join(s, st.shift) })
	}
	wg.Wait()
}

func (w *world) roll(_ *slot, st step) {
	for _, s := range w.slots {
		w.drain(s, step{fault: st.fault, seed: st.seed + uint64(s.n)})
	}
}
