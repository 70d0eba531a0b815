package remotestorage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"
)

// A grant is what an application was let in to. Only the hash of its token is
// kept.
type grant struct {
	id            string
	scope         scope
	used, expires int64
}

const (
	codeTTL = time.Minute
	// usedStep is how exactly the last use of a token is known: writing it down
	// costs a commit.
	usedStep = 24 * time.Hour
)

func hashToken(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// loadGrants reads all of them: there are few.
func (v *vault) loadGrants(ctx context.Context) error {
	if v.grants != nil {
		return nil
	}
	all := map[[32]byte]*grant{}
	for row, err := range v.db.Query(ctx, `SELECT hash, id, scope, used, expires FROM grants`) {
		var hash []byte
		var text string
		g := &grant{}
		if err == nil {
			err = row.Scan(&hash, &g.id, &text, &g.used, &g.expires)
		}
		if err == nil {
			g.scope, err = parseScope(text)
		}
		if err != nil {
			return err
		}
		all[[32]byte(hash)] = g
	}
	v.grants = all
	return nil
}

// admit reports whether the request may have what it asks for, and answers when
// it may not.
func (v *vault) admit(w http.ResponseWriter, r *http.Request, p docPath, write bool) (bool, error) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); token == "" {
		if !write && p.isPublic() {
			return true, nil
		}
		return false, errors.New("a request without a token has passed the front door")
	}
	if err := v.loadGrants(r.Context()); err != nil {
		return false, err
	}
	hash := hashToken(token)
	g := v.grants[hash]
	now := v.now()
	if g == nil || g.expires > 0 && g.expires <= now {
		w.Header().Set("WWW-Authenticate", `Bearer realm="store", error="invalid_token"`)
		text(w, http.StatusUnauthorized, "the access token is not valid")
		return false, nil
	}
	if !(g.scope.allows(p, write) || !write && p.isPublic()) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="store", error="insufficient_scope"`)
		text(w, http.StatusForbidden, "the access token is not for this")
		return false, nil
	}
	if now-g.used > usedStep.Milliseconds() {
		if _, err := v.exec(r.Context(), `UPDATE grants SET used = ? WHERE hash = ?`, now, hash[:]); err != nil {
			return false, err
		}
		g.used = now
	}
	return true, nil
}

type grantRequest struct {
	Origin string `json:"origin"`
	Scope  string `json:"scope"`
	// Redirect and Challenge are those of a code.
	Redirect  string `json:"redirect,omitempty"`
	Challenge string `json:"challenge,omitempty"`
}

type grantAnswer struct {
	Token   string `json:"token"`
	Scope   string `json:"scope"`
	Expires int64  `json:"expires"` // seconds from now, 0 for never
}

// grant makes a token.
func (v *vault) grant(ctx context.Context, q grantRequest) (grantAnswer, error) {
	if open, err := v.load(ctx); err != nil || !open {
		return grantAnswer{}, orRefusal(err, errNoAccountRefused)
	}
	a, _, err := v.newGrant(ctx, q.Origin, q.Scope)
	return a, err
}

func (v *vault) newGrant(ctx context.Context, origin, scope string) (grantAnswer, string, error) {
	token, id, now, expires := rand.Text(), strings.ToLower(rand.Text()[:16]), v.now(), int64(0)
	ttl := time.Duration(v.settings.TokenTTL)
	if ttl > 0 {
		expires = now + ttl.Milliseconds()
	}
	hash := hashToken(token)
	v.grants = nil
	if _, err := v.exec(ctx, `INSERT INTO grants VALUES (?, ?, ?, ?, ?, ?, ?)`, hash[:], id, origin, scope, now, now, expires); err != nil {
		return grantAnswer{}, "", err
	}
	return grantAnswer{token, scope, int64(ttl / time.Second)}, id, v.setAlarm(ctx)
}

// code makes a code that can be traded for a token once, soon, by who knows
// what the challenge was made from.
func (v *vault) code(ctx context.Context, q grantRequest) (grantAnswer, error) {
	if open, err := v.load(ctx); err != nil || !open {
		return grantAnswer{}, orRefusal(err, errNoAccountRefused)
	}
	code := rand.Text()
	hash := hashToken(code)
	if _, err := v.exec(ctx, `INSERT INTO code (hash, redirect, challenge, origin, scope, expires) VALUES (?, ?, ?, ?, ?, ?)`,
		hash[:], q.Redirect, q.Challenge, q.Origin, q.Scope, v.now()+codeTTL.Milliseconds()); err != nil {
		return grantAnswer{}, err
	}
	return grantAnswer{Token: code, Scope: q.Scope}, v.setAlarm(ctx)
}

type redeemRequest struct {
	Code     string `json:"code"`
	Redirect string `json:"redirect"`
	// Challenge is made from the verifier that came with the code.
	Challenge string `json:"challenge"`
}

var errInvalidGrant = &refusal{http.StatusBadRequest, "invalid_grant"}

// redeem trades a code for a token. Whoever comes second shows that the code is
// in two hands: then the token is no good either.
func (v *vault) redeem(ctx context.Context, q redeemRequest) (grantAnswer, error) {
	var redirect, challenge, origin, scope, made string
	var expires int64
	hash := hashToken(q.Code)
	found, err := first(ctx, v.db, []any{&redirect, &challenge, &origin, &scope, &expires, &made},
		`SELECT redirect, challenge, origin, scope, expires, coalesce(made, '') FROM code WHERE hash = ?`, hash[:])
	if err != nil {
		return grantAnswer{}, err
	}
	if !found || expires <= v.now() {
		return grantAnswer{}, errInvalidGrant
	}
	if made != "" {
		v.grants = nil
		if _, err := v.exec(ctx, `DELETE FROM grants WHERE id = ?`, made); err != nil {
			return grantAnswer{}, err
		}
		return grantAnswer{}, errInvalidGrant
	}
	if redirect != q.Redirect || subtle.ConstantTimeCompare([]byte(challenge), []byte(q.Challenge)) != 1 {
		_, err := v.exec(ctx, `DELETE FROM code WHERE hash = ?`, hash[:]) // one try
		return grantAnswer{}, orRefusal(err, errInvalidGrant)
	}
	a, id, err := v.newGrant(ctx, origin, scope)
	if err == nil {
		_, err = v.exec(ctx, `UPDATE code SET made = ? WHERE hash = ?`, id, hash[:])
	}
	return a, err
}

type grantInfo struct {
	ID      string `json:"id"`
	Origin  string `json:"origin"`
	Scope   string `json:"scope"`
	Created int64  `json:"created"`
	Used    int64  `json:"used"`
	Expires int64  `json:"expires,omitempty"`
}

func (v *vault) listGrants(ctx context.Context) ([]grantInfo, error) {
	list := []grantInfo{}
	for row, err := range v.db.Query(ctx, `SELECT id, origin, scope, created, used, expires FROM grants ORDER BY origin, created`) {
		var g grantInfo
		if err == nil {
			err = row.Scan(&g.ID, &g.Origin, &g.Scope, &g.Created, &g.Used, &g.Expires)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, nil
}

type revokeRequest struct {
	ID string `json:"id"`
}

func (v *vault) revoke(ctx context.Context, q revokeRequest) (none, error) {
	v.grants = nil
	_, err := v.exec(ctx, `DELETE FROM grants WHERE id = ?`, q.ID)
	return none{}, err
}

// orRefusal is a failure, or else the refusal.
func orRefusal(err error, no *refusal) error {
	if err != nil {
		return err
	}
	return no
}
