package hrana

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// authorized checks the bearer token of a request; false after it has answered
// with an error.
func (s *Server) authorized(w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.Token == "" {
		return true
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		header = r.Header.Get("X-Authorization")
	}
	scheme, token, _ := strings.Cut(header, " ")
	// Of hashes, as the comparison tells lengths apart.
	given, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.cfg.Token))
	if !strings.EqualFold(scheme, "bearer") || subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		sendError(w, http.StatusUnauthorized, "Authentication failed: the bearer token is missing or wrong")
		return false
	}
	return true
}
