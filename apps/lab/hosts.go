package lab

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// hosts decides which host names the lab answers to. A page of another site
// that points a name of its own at this machine (DNS rebinding) sends that name
// as Host; one that just calls sends its own as Origin.
type hosts struct{ base string }

func newHosts(base *url.URL) hosts { return hosts{base.Hostname()} }

// refusal returns the status and text with which a request is refused, or 0.
func (h hosts) refusal(r *http.Request) (int, string) {
	if !h.known((&url.URL{Host: r.Host}).Hostname()) {
		return http.StatusMisdirectedRequest, "the lab does not answer to this host name"
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !h.known(u.Hostname()) {
			return http.StatusForbidden, "the lab does not answer to pages of another site"
		}
	}
	return 0, ""
}

func (h hosts) known(name string) bool {
	if strings.EqualFold(name, "localhost") || (name != "" && strings.EqualFold(name, h.base)) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}
