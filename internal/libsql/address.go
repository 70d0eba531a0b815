package libsql

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// An address is a file's path or a server's URL.
type address struct {
	path string
	url  *url.URL
}

func (a address) String() string {
	if a.path != "" {
		return "file:" + a.path
	}
	return a.url.String()
}

// parseAddress reads a database URL. Its errors never show the URL, which may
// hold a secret in a place where none belongs.
func parseAddress(s string) (address, error) {
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return address{}, errors.New("database URL: no scheme; use file:PATH, http://, https:// or libsql://")
	}
	if strings.ContainsAny(rest, "?#") {
		return address{}, errors.New("database URL: parameters are not taken; a token is set by its own option")
	}
	switch scheme {
	case "file":
		path := rest
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			path = after
			if !strings.HasPrefix(path, "/") {
				return address{}, errors.New("database URL: a file has no host; use file:PATH")
			}
		}
		if path == "" || strings.HasPrefix(path, ":") || strings.ContainsRune(path, 0) {
			return address{}, errors.New("database URL: file: needs the path of a file")
		}
		return address{path: path}, nil
	case "http", "https", "libsql":
		u, err := url.Parse(s)
		if err != nil {
			return address{}, errors.New("database URL: not a valid URL")
		}
		if u.User != nil {
			return address{}, errors.New("database URL: user information is not taken; a token is set by its own option")
		}
		if u.Host == "" || u.Hostname() == "" {
			return address{}, errors.New("database URL: no host")
		}
		if scheme == "libsql" {
			u.Scheme = "https"
		}
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
		return address{url: u}, nil
	default:
		return address{}, fmt.Errorf("database URL: unknown scheme %q; use file, http, https or libsql", scheme)
	}
}
