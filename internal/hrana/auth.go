package hrana

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// A right is what a request may do.
type right int

const (
	noRight right = iota
	reading
	everything
)

// right is that of the token of a request.
func (s *Server) right(r *http.Request) right {
	if s.cfg.Token == "" {
		return everything
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		header = r.Header.Get("X-Authorization")
	}
	scheme, token, _ := strings.Cut(header, " ")
	// Of hashes, as the comparison tells lengths apart.
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	is := func(token string) bool {
		want := sha256.Sum256([]byte(token))
		return token != "" && subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	switch {
	case !strings.EqualFold(scheme, "bearer"):
		return noRight
	case is(s.cfg.Token):
		return everything
	case is(s.cfg.ReadToken):
		return reading
	}
	return noRight
}

// authorized checks the bearer token of a request; false after it has answered
// with an error.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	if s.right(r) == noRight {
		sendError(w, http.StatusUnauthorized, "Authentication failed: the bearer token is missing or wrong")
		return false
	}
	return true
}
