package fleettest

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// A Crew are the replicas that clients may send requests to, while faults befall
// them. A replica that dies is replaced.
type Crew struct {
	fleet *Fleet
	env   []string
	// fault is the name of the present one.
	fault atomic.Value
	// released counts the leases that operators ended.
	released atomic.Int64

	mu       sync.Mutex
	replicas []*Replica
	links    map[*Replica]*Link
}

// calm is the name of no fault.
const calm = "none"

// NewCrew starts n replicas, each with a link of its own when there is a server.
func (f *Fleet) NewCrew(n int, env ...string) *Crew {
	f.t.Helper()
	c := &Crew{fleet: f, env: env, links: map[*Replica]*Link{}}
	c.fault.Store(calm)
	for range n {
		c.join()
	}
	return c
}

func (c *Crew) join() {
	env := c.env
	var link *Link
	if s := c.fleet.Server; s != nil {
		link = s.NewLink()
		env = append(env[:len(env):len(env)], "DWK_LIBSQL_URL="+link.URL)
	}
	r := c.fleet.Start(env...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas, c.links[r] = append(c.replicas, r), link
}

// Pick returns one of the replicas.
func (c *Crew) Pick(r *rand.Rand) *Replica {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replicas[r.IntN(len(c.replicas))]
}

// Fault names the present fault.
func (c *Crew) Fault() string { return c.fault.Load().(string) }

// A Fault befalls a crew. It is over when the function returns. Objects are what
// clients use at that time.
type Fault struct {
	Name string
	// Wire is set when it needs a server.
	Wire bool
	do   func(c *Crew, r *rand.Rand, objects func() []string)
}

// Befall has a fault befall the crew, and leaves it alone for a moment.
func (c *Crew) Befall(f Fault, r *rand.Rand, objects func() []string) {
	c.fault.Store(f.Name)
	f.do(c, r, objects)
	time.Sleep(TTL / 4) // what it did to calls that are under way is its doing too
	c.fault.Store(calm)
	time.Sleep(TTL / 4)
}

// Faults are all there are.
var Faults = []Fault{
	{Name: "killed", do: func(c *Crew, r *rand.Rand, _ func() []string) {
		c.mu.Lock()
		i := r.IntN(len(c.replicas))
		victim := c.replicas[i]
		c.replicas = append(c.replicas[:i:i], c.replicas[i+1:]...)
		c.mu.Unlock()
		victim.Kill()
		c.join()
	}},
	{Name: "stopped for less than the lease", do: func(c *Crew, r *rand.Rand, _ func() []string) { c.stop(r, TTL/3) }},
	{Name: "stopped for longer than the lease", do: func(c *Crew, r *rand.Rand, _ func() []string) { c.stop(r, TTL*3/2) }},
	{Name: "released by an operator", do: func(c *Crew, r *rand.Rand, objects func() []string) {
		for _, path := range objects() {
			c.release(r, path)
		}
	}},
	{Name: "a link cut", Wire: true, do: func(c *Crew, r *rand.Rand, _ func() []string) {
		l := c.links[c.Pick(r)]
		l.Cut()
		time.Sleep(TTL * 3 / 2)
		l.Mend()
	}},
	{Name: "requests and answers cut", Wire: true, do: func(c *Crew, r *rand.Rand, _ func() []string) {
		c.fleet.Server.SetHook(func(ctx context.Context, _ hrana.Request) hrana.Fault {
			switch rand.IntN(12) {
			case 0:
				return hrana.Fault{CutBefore: true}
			case 1, 2:
				return hrana.Fault{CutAfter: true}
			case 3:
				return hrana.Fault{Status: http.StatusBadGateway}
			case 4: // late, while the others go on
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
				}
			}
			return hrana.Fault{}
		})
		time.Sleep(TTL / 2)
		c.fleet.Server.SetHook(nil)
	}},
	{Name: "server restarted", Wire: true, do: func(c *Crew, r *rand.Rand, _ func() []string) {
		c.fleet.Server.Restart(time.Duration(r.Int64N(int64(TTL / 2))))
	}},
}

// release ends the lease of an object, which most of the time is too short for
// that: a note is given an event that takes longer, and only reads, so that its
// holder is not told by a commit that the lease is gone.
func (c *Crew) release(r *rand.Rand, path string) {
	kind, name := split(path)
	class := "Counter"
	if kind == "note" {
		class = "Note"
		holder, done := c.Pick(r), make(chan struct{})
		go func() { // refused, or done when it came later
			defer close(done)
			runSQL(holder, name, statement{SQL: `WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000) SELECT count(*) FROM c`})
		}()
		defer func() { <-done }()
	}
	for range 5 {
		res := c.fleet.CommandEnv([]string{"DWK_LIBSQL_TIMEOUT=1m"}, "lease", "release", class, "--name", name, "--yes")
		changed := res.Code == 1 && strings.Contains(res.Stderr, "changed meanwhile")
		switch {
		case res.Code == 0:
			c.released.Add(1)
			return
		case res.Code != 3 && !changed: // 3: there was none
			c.fleet.t.Errorf("lease release: exit %d: %s", res.Code, res.Stderr)
			return
		}
	}
}

func (c *Crew) stop(r *rand.Rand, d time.Duration) {
	victim := c.Pick(r)
	victim.Stop()
	time.Sleep(d)
	victim.Continue()
}
