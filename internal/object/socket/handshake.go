package socket

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// A Refusal says why a request cannot become a WebSocket, and with which status
// it is answered.
type Refusal struct {
	Status int
	Text   string
}

func (e *Refusal) Error() string { return e.Text }

// Check reports, as a *Refusal, what is wrong with a request that asks for a
// WebSocket. Base is the URL under which the application is reached.
//
// A browser lets every page open a WebSocket to every host, and sends that
// host's cookies along, but it tells the page's origin. A page of another site is
// refused, so that it cannot act in the name of who looks at it. Who sends no
// Origin is no browser.
func Check(r *http.Request, base *url.URL) error {
	switch h := r.Header; {
	case r.Method != http.MethodGet:
		return &Refusal{http.StatusMethodNotAllowed, "a WebSocket is asked for with GET"}
	case !websocket.IsWebSocketUpgrade(r):
		return &Refusal{http.StatusUpgradeRequired, "this path is a WebSocket"}
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return &Refusal{http.StatusHTTPVersionNotSupported, "a WebSocket is asked for with HTTP/1.1"}
	case !slices.Equal(h.Values("Sec-Websocket-Version"), []string{"13"}):
		return &Refusal{http.StatusUpgradeRequired, "only version 13 of the WebSocket protocol is spoken"}
	case !validKey(h.Values("Sec-Websocket-Key")):
		return &Refusal{http.StatusBadRequest, "Sec-WebSocket-Key is not a key"}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !SameOrigin(origin, base, r.Host) {
			return &Refusal{http.StatusForbidden, "a page of another site asks for the WebSocket"}
		}
	}
	return nil
}

func validKey(values []string) bool {
	if len(values) != 1 {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(values[0])
	return err == nil && len(key) == 16
}

// SameOrigin reports whether a page's origin is that of base or, on the machine
// itself, that of the host which the page asks: no foreign page has such a name.
func SameOrigin(origin string, base *url.URL, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	if base != nil && strings.EqualFold(u.Scheme, base.Scheme) && address(u) == address(base) {
		return true
	}
	return strings.EqualFold(u.Host, host) && loopback(u.Hostname())
}

// address is a URL's host with its port.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

func loopback(name string) bool {
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.IsLoopback()
}

// Offered reports whether the request's client speaks a subprotocol.
func Offered(r *http.Request, protocol string) bool {
	return slices.Contains(websocket.Subprotocols(r), protocol)
}

// ValidClose reports whether an application may close a socket with a code and a
// reason.
func ValidClose(code int, reason string) bool {
	switch {
	case len(reason) > maxReason || !utf8.ValidString(reason):
		return false
	case code >= 3000 && code <= 4999, code >= 1007 && code <= 1014:
		return true
	}
	return code == 1000 || code == 1001 || code == 1003
}
