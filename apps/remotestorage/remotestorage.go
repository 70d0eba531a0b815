// Package remotestorage is a remoteStorage server
// (draft-dejong-remotestorage-26): storage that belongs to people and not to
// the applications which they use.
//
// Paths below the mount:
//
//	/store/{name}/...   the store of an account
//	/oauth/{name}       the dialog in which its owner lets an application in
//	/token              where an application trades a code for a token
//	/                   the owner's page: applications, password
//	/login, /logout, /revoke, /password    what its forms do
//
// and WebFinger at /.well-known/webfinger.
//
// Each account is one object, a Vault: all names, versions and small bodies,
// tokens and the quota are in its database, so that a condition and the change
// that depends on it are one event. Larger bodies are in a bucket, each under a
// key of its own that is never written twice; the Vault points to them. The
// front door streams them, so that no event carries one. Accounts and their
// passwords are in a SQL database.
package remotestorage

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// The bindings that the application requires.
const (
	databaseName = "RS_ACCOUNTS"
	bucketName   = "RS_BODIES"
	cacheName    = "RS_CACHE"
	queueName    = "remotestorage"
)

const (
	vaultClass = "Vault"
	sweepName  = "remotestorage-sweep"
)

// version is what WebFinger announces.
const version = "draft-dejong-remotestorage-26"

// Settings are the application's own configuration.
type Settings struct {
	// StorageURL is where clients reach this mount for the store, when that is
	// not below base_url: best on a host name of its own, as the store has pages
	// of strangers in it. Then the store answers only there, and the rest does not.
	StorageURL string `json:"storage_url"`
	// AccountHost is the part of user addresses after the @; the host of base_url
	// when it is empty.
	AccountHost string `json:"account_host"`
	// Quota is what a new account may store, in bytes; 0 is no bound.
	Quota int64 `json:"quota"`
	// MaxDocument bounds one document, in bytes.
	MaxDocument int64 `json:"max_document"`
	// InlineLimit is the largest body that is kept in the account's object, in
	// bytes; larger ones are in the bucket.
	InlineLimit int64 `json:"inline_limit"`
	// Grace is how long a body stays in the bucket when nothing points to it: longer than any
	// download or upload takes, and than objects can be brought back.
	Grace Duration `json:"grace"`
	// TokenTTL is how long an application is let in for; 0 is until it is revoked.
	TokenTTL Duration `json:"token_ttl"`
	// SessionTTL is how long an owner stays signed in.
	SessionTTL Duration `json:"session_ttl"`
	// TrustedProxies are the networks of proxies, whose X-Forwarded-For tells
	// which client they ask for.
	TrustedProxies []netip.Prefix `json:"trusted_proxies"`
}

// Duration is a duration that is written as "25h".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 90s or 25h", text)
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func defaults() *Settings {
	return &Settings{
		MaxDocument: 5 << 30, InlineLimit: 64 << 10,
		Grace: Duration(25 * time.Hour), SessionTTL: Duration(12 * time.Hour),
	}
}

// maxInline bounds InlineLimit: it is held in memory, and a commit has a limit.
const maxInline = 8 << 20

func (s *Settings) check() error {
	switch {
	case s.Quota < 0:
		return fmt.Errorf("quota must not be negative")
	case s.MaxDocument < 1 || s.MaxDocument > 5<<30:
		return fmt.Errorf("max_document must be from 1 byte to 5 GiB")
	case s.InlineLimit < 0 || s.InlineLimit > maxInline:
		return fmt.Errorf("inline_limit must be from 0 to %d bytes", maxInline)
	case s.Grace == 0:
		return fmt.Errorf("grace must not be 0")
	case s.SessionTTL == 0:
		return fmt.Errorf("session_ttl must not be 0")
	}
	return nil
}

// App returns the application.
func App() durable.App {
	return durable.App{
		Name:      "remotestorage",
		Summary:   "Accounts of the remoteStorage server",
		New:       newFront,
		WellKnown: map[string]func(durable.Env) (http.Handler, error){"webfinger": newWebFinger},
		Commands:  commands(),
		Classes:   map[string]durable.Class{vaultClass: newVault},
		Consumers: map[string]durable.Consumer{queueName: consume},
		Crons:     []durable.Cron{{Name: sweepName, Schedule: "17 4 * * *", Run: sweep}},
		Requires: durable.Requirements{
			Databases: []string{databaseName}, Buckets: []string{bucketName}, Queues: []string{queueName}, Caches: []string{cacheName},
		},
		Settings: defaults(),
	}
}

// places are the URLs of the parts, as clients see them.
type places struct {
	base, storage *url.URL
	accountHost   string
	apart         bool // the store has a host name of its own
}

func newPlaces(env durable.Env, s *Settings) (places, error) {
	p := places{base: env.BaseURL(), accountHost: s.AccountHost}
	p.storage = env.BaseURL()
	if s.StorageURL != "" {
		u, err := url.Parse(s.StorageURL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return p, fmt.Errorf("storage_url %q is not an http or https URL without query", s.StorageURL)
		}
		p.storage = u
	}
	p.apart = !strings.EqualFold(p.storage.Host, p.base.Host)
	if p.accountHost == "" {
		p.accountHost = p.base.Host
	}
	return p, nil
}

// storageRoot is the root of an account's store. It has no slash at its end.
func (p places) storageRoot(name string) string {
	return p.storage.JoinPath("store", name).String()
}

func (p places) at(path ...string) string { return p.base.JoinPath(path...).String() }

// misdirected reports whether a request for the store, or for anything else,
// came under the other's host name.
func (p places) misdirected(r *http.Request, store bool) bool {
	return p.apart && strings.EqualFold(r.Host, p.storage.Host) != store
}

// root is the URL of the mount, without a slash at its end.
func (p places) root() string { return strings.TrimSuffix(p.base.String(), "/") }
