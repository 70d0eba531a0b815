package server

import (
	"container/list"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/davidwkeith/dwk/internal/clock"
)

// maxLimited is how many addresses are remembered; the one seen longest ago is
// forgotten first.
const maxLimited = 10_000

// Rate bounds the requests of one remote address. Behind a proxy every request
// has the proxy's address, and the bound belongs there.
type Rate struct {
	// PerSecond is the lasting rate; 0 means no bound.
	PerSecond float64
	// Burst is how many requests may come at once; at least 1.
	Burst int
}

type limiter struct {
	rate  rate.Limit
	burst int

	mu    sync.Mutex
	byIP  map[netip.Addr]*list.Element
	order *list.List // of *limited, the latest in front
}

type limited struct {
	ip     netip.Addr
	bucket *rate.Limiter
}

// newLimiter returns nil, which allows everything, when there is no rate.
func newLimiter(r Rate) *limiter {
	if r.PerSecond <= 0 {
		return nil
	}
	return &limiter{rate: rate.Limit(r.PerSecond), burst: max(r.Burst, 1), byIP: map[netip.Addr]*list.Element{}, order: list.New()}
}

// allow counts a request of the address. When it is one too many, retry is the
// number of seconds after which another may pass.
func (l *limiter) allow(remote string) (retry int, ok bool) {
	if l == nil || l.bucket(remote).AllowN(clock.Now(), 1) {
		return 0, true
	}
	wait := time.Duration(float64(time.Second) / float64(l.rate))
	return int(max(1, math.Ceil(wait.Seconds()))), false
}

func (l *limiter) bucket(remote string) *rate.Limiter {
	ip := clientNetwork(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byIP[ip]; e != nil {
		l.order.MoveToFront(e)
		return e.Value.(*limited).bucket
	}
	if l.order.Len() >= maxLimited {
		oldest := l.order.Remove(l.order.Back()).(*limited)
		delete(l.byIP, oldest.ip)
	}
	b := rate.NewLimiter(l.rate, l.burst)
	l.byIP[ip] = l.order.PushFront(&limited{ip, b})
	return b
}

// clientNetwork returns the address that counts as one client: a single IPv4
// address, or the /64 that an IPv6 client has to itself. What cannot be read
// is one client together.
func clientNetwork(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}
