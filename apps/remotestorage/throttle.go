package remotestorage

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/davidwkeith/dwk/durable"
)

const (
	failureBurst = 60              // failures that a client may have at once
	failureEvery = 2 * time.Second // another one each
	knownTTL     = 10 * time.Minute
)

// A throttle slows down clients that guess: at tokens, or at the names of public
// documents. Each replica counts for itself. Tokens that were good a while ago
// pass, whoever shares the client's address.
type throttle struct {
	env     durable.Env
	cache   durable.Cache
	trusted []netip.Prefix
}

func newThrottle(env durable.Env, trusted []netip.Prefix) *throttle {
	return &throttle{env: env, cache: env.Cache(cacheName), trusted: trusted}
}

// client is the address that a request comes from, by the word of proxies that
// are trusted.
func (t *throttle) client(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && t.trusts(host) && strings.TrimSpace(hops[i]) != ""; i-- {
		host = strings.TrimSpace(hops[i])
	}
	return network(net.ParseIP(host))
}

func (t *throttle) trusts(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range t.trusted {
		if p.Contains(ip.Unmap()) {
			return true
		}
	}
	return false
}

func (t *throttle) limiter(r *http.Request) *rate.Limiter {
	key := "failures:" + t.client(r)
	if l, ok := t.cache.Get(key); ok {
		return l.(*rate.Limiter)
	}
	l := rate.NewLimiter(rate.Every(failureEvery), failureBurst)
	t.cache.Set(key, l, failureBurst*failureEvery)
	return l
}

// allow reports whether a request may be tried, and else when, in seconds.
func (t *throttle) allow(r *http.Request) (wait int, ok bool) {
	l, found := t.cache.Get("failures:" + t.client(r))
	if !found || l.(*rate.Limiter).TokensAt(t.env.Now()) >= 1 {
		return 0, true
	}
	if _, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); token != "" {
		if _, known := t.cache.Get(knownKey(token)); known {
			return 0, true
		}
	}
	return int(failureEvery / time.Second), false
}

// failed counts a failure of the client.
func (t *throttle) failed(r *http.Request) { t.limiter(r).AllowN(t.env.Now(), 1) }

// knows remembers a token that was good.
func (t *throttle) knows(token string) { t.cache.Set(knownKey(token), true, knownTTL) }

func knownKey(token string) string {
	hash := hashToken(strings.TrimSpace(token))
	return "known:" + string(hash[:])
}
