package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

var errBadPath = errors.New("bad path")

// A reqPath is a request's path, cut at its slashes: the segments as they were
// sent, and unescaped. "/" is one empty segment.
type reqPath struct{ raw, names []string }

// parsePath checks and cuts the escaped path of a request.
func parsePath(escaped string) (reqPath, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return reqPath{}, errBadPath
	}
	p := reqPath{raw: strings.Split(rest, "/")}
	p.names = make([]string, len(p.raw))
	for i, raw := range p.raw {
		name, err := url.PathUnescape(raw)
		if err != nil || strings.ContainsRune(name, 0) || hasDots(name) {
			return reqPath{}, errBadPath
		}
		p.names[i] = name
	}
	return p, nil
}

// hasDots reports whether a segment is, or unescapes to something with, a "."
// or ".." segment. Clients resolve those before they send; only a trick leaves
// them in, and a handler that looks at the unescaped path must not meet them.
func hasDots(name string) bool {
	for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return c == '/' || c == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// under reports whether the path is prefix or lies below it.
func (p reqPath) under(prefix []string) bool {
	return len(p.names) >= len(prefix) && slices.Equal(p.names[:len(prefix)], prefix)
}

// below removes the first n segments. What remains of a path that has no more
// is "/".
func (p reqPath) below(n int) reqPath {
	if n >= len(p.raw) {
		return reqPath{raw: []string{""}, names: []string{""}}
	}
	return reqPath{raw: p.raw[n:], names: p.names[n:]}
}

func (p reqPath) escaped() string { return "/" + strings.Join(p.raw, "/") }
func (p reqPath) path() string    { return "/" + strings.Join(p.names, "/") }

// rewrite returns the request with the path, and with the scheme and host of
// base in place of whatever the client sent.
func rewrite(r *http.Request, base *url.URL, p reqPath) *http.Request {
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: p.path(), ForceQuery: r.URL.ForceQuery, RawQuery: r.URL.RawQuery}
	if escaped := p.escaped(); u.EscapedPath() != escaped {
		u.RawPath = escaped
	}
	c := *r
	c.URL = u
	return &c
}

// splitFixed cuts a configured path, such as that of a mount, into segments.
// "/" has none.
func splitFixed(path string) ([]string, error) {
	if path == "/" {
		return nil, nil
	}
	p, err := parsePath((&url.URL{Path: path}).EscapedPath())
	if err != nil || slices.Contains(p.names, "") {
		return nil, fmt.Errorf("path %q must begin with a slash, end without one, and have no empty or dot segments", path)
	}
	return p.names, nil
}
