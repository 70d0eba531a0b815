package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// slots is how many replicas there are at a time.
const slots = 3

// The focuses: which mix of calls and faults.
const (
	All     = "all"
	Objects = "objects"
	Alarms  = "alarms"
	Queue   = "queue"
	Cron    = "cron"
	Bucket  = "bucket"
	Drain   = "drain"
	Mirrors = "mirrors"
	Leases  = "leases"
)

// Focuses are all there are.
var Focuses = []string{All, Objects, Alarms, Queue, Cron, Bucket, Drain, Mirrors, Leases}

// A step is something that befalls the fleet.
type step struct {
	// pause is the time since the step before began, or since it ended unless
	// beside is set.
	pause  time.Duration
	beside bool
	fault  string
	slot   int
	// lasts is how long, for those that last.
	lasts time.Duration
	// shift is the clock of a replica that is started by it.
	shift time.Duration
	// seed decides the rest.
	seed uint64
}

func (s step) String() string {
	var b strings.Builder
	when := "then"
	if s.beside {
		when = "beside"
	}
	fmt.Fprintf(&b, "%-6s +%-6v %s", when, s.pause, s.fault)
	if f := faults[s.fault]; f.slot {
		fmt.Fprintf(&b, ", replica %d", s.slot+1)
	}
	if s.lasts > 0 {
		fmt.Fprintf(&b, ", for %v", s.lasts)
	}
	if s.shift != 0 {
		fmt.Fprintf(&b, ", its successor's clock %+v", s.shift)
	}
	return b.String()
}

// A Plan is what a seed decides.
type Plan struct {
	Seed  uint64
	Focus string
	// TTL is that of leases.
	TTL time.Duration
	// Clients make calls, at least Calls of them together.
	Clients, Calls int
	// mix are the shares of the kinds of calls.
	mix []share
	// shifts are the clocks of the first replicas.
	shifts [slots]time.Duration
	// disk has a small disk when a step fills it.
	disk  int
	steps []step
}

// A share is how often a kind of call is drawn.
type share struct {
	kind string
	n    int
}

// mixes are the shares by focus.
var mixes = map[string][]share{
	All:     {{"counter", 36}, {"note", 24}, {"ledger", 10}, {"sql", 8}, {"alarm", 5}, {"queue", 9}, {"bucket", 8}, {"slow", 1}},
	Objects: {{"counter", 50}, {"note", 35}, {"ledger", 15}, {"slow", 2}},
	Leases:  {{"counter", 35}, {"note", 50}, {"ledger", 10}, {"slow", 6}},
	Mirrors: {{"counter", 40}, {"note", 30}, {"ledger", 30}},
	Alarms:  {{"alarm", 50}, {"counter", 30}, {"note", 20}},
	Queue:   {{"queue", 60}, {"counter", 30}, {"sql", 10}},
	Cron:    {{"counter", 60}, {"sql", 40}},
	Bucket:  {{"bucket", 60}, {"note", 20}, {"ledger", 20}},
	Drain:   {{"counter", 35}, {"note", 25}, {"ledger", 10}, {"alarm", 10}, {"queue", 15}, {"bucket", 5}},
}

// weights are how often faults are drawn, by focus; those that a focus does not
// name have the weight of All.
var weights = map[string]map[string]int{
	Objects: {"queue redriven": 0, "fleet down": 0},
	Leases:  {"stopped longer than the lease": 10, "lease released": 10, "link to libSQL cut": 8, "answers of libSQL late": 8, "requests to libSQL late": 8, "queue redriven": 0},
	Mirrors: {"mirrors deleted": 12, "mirrors damaged": 12, "object restored": 8, "log merged": 8},
	Alarms:  {"killed": 8, "fleet down": 6, "stopped longer than the lease": 6},
	Queue:   {"killed": 8, "queue redriven": 8, "drained": 6},
	Cron:    {"killed": 10, "stopped longer than the lease": 8},
	Bucket:  {"link to S3 cut": 8, "answers of S3 lost": 8, "S3 busy": 8, "answers of S3 late": 6},
	Drain:   {"drained": 14, "rolling restart": 6},
}

// clocks are what a replica's clock may be off.
var clocks = []time.Duration{0, 0, time.Hour, -time.Hour}

// Options choose what is drawn, beside the seed.
type DrawOptions struct {
	Focus string
	// Steps and Calls are how many there are; 0 is the usual number.
	Steps, Calls int
	// TTL, unless 0, is that of leases.
	TTL time.Duration
}

// Draw draws the plan of a seed.
func Draw(seed uint64, o DrawOptions) Plan {
	if o.Focus == "" {
		o.Focus = All
	}
	r := rand.New(rand.NewPCG(seed, 1))
	p := Plan{Seed: seed, Focus: o.Focus, Clients: 16, Calls: 5200, mix: mixes[o.Focus], disk: -1}
	// The usual lease makes each wait for its end five times as long.
	if p.TTL = 2 * time.Second; r.IntN(5) == 0 {
		p.TTL = 10 * time.Second
	}
	if o.TTL > 0 {
		p.TTL = o.TTL
	}
	if o.Calls > 0 {
		p.Calls = o.Calls
	}
	for i := range p.shifts {
		p.shifts[i] = clocks[r.IntN(len(clocks))]
	}
	n := 7 + r.IntN(3)
	if o.Steps > 0 {
		n = o.Steps
	}
	var bag []string
	for _, name := range faultNames() {
		w := faults[name].weight
		if other, ok := weights[o.Focus][name]; ok {
			w = other
		}
		for range w {
			bag = append(bag, name)
		}
	}
	long := 0 // of those that wait for the end of a usual lease one is enough
	for len(p.steps) < n {
		name := bag[r.IntN(len(bag))]
		s := step{fault: name, slot: r.IntN(slots), pause: time.Duration(100+r.IntN(500)) * time.Millisecond, seed: r.Uint64(), shift: clocks[r.IntN(len(clocks))]}
		beside, f := r.IntN(4) == 0, faults[name]
		if s.lasts = f.lasts(r, p.TTL); s.lasts > 4*time.Second {
			if long++; long > 1 {
				continue
			}
		}
		if !f.starts {
			s.shift = 0
		}
		if len(p.steps) > 0 {
			last := p.steps[len(p.steps)-1]
			s.beside = beside && !f.alone && !faults[last.fault].alone && !last.beside && (last.slot != s.slot || !f.slot)
		}
		if name == "disk full" {
			if p.disk >= 0 {
				s.slot = p.disk
			}
			p.disk = s.slot
		}
		p.steps = append(p.steps, s)
	}
	return p
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, focus %s, lease %v, %d clients, at least %d calls\ncalls:", p.Seed, p.Focus, p.TTL, p.Clients, p.Calls)
	for _, s := range p.mix {
		fmt.Fprintf(&b, " %s %d", s.kind, s.n)
	}
	fmt.Fprintf(&b, "\nclocks: %v\n", p.shifts)
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%2d %v\n", i+1, s)
	}
	return b.String()
}

// faultNames are the faults in a fixed order.
func faultNames() []string {
	var names []string
	for name := range faults {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
