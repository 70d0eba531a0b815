package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Mount places a handler at a path.
type Mount struct {
	// Path begins with a slash and, but for "/", ends without one.
	Path string
	// Handler sees paths below the mount: "/" is the mount itself.
	Handler http.Handler
	// BodyLimit bounds a request's body in bytes; 0 means no bound. A larger
	// announced body is refused with 413; one that turns out to be larger fails
	// the handler's read with [http.MaxBytesError].
	BodyLimit int64
}

// PublicConfig says what the public listener serves.
type PublicConfig struct {
	// BaseURL is the public URL of the replica: scheme, host and, perhaps, a
	// path.
	BaseURL *url.URL
	Mounts  []Mount
	// WellKnown are handlers by name for "/.well-known/<name>" and the paths
	// below it. They see the whole path. A name without a handler is left to a
	// mount at "/".
	WellKnown map[string]http.Handler
	// Health serves HealthPath and ReadyPath when it is not nil; see [NewHealth].
	Health http.Handler
	// Dir is the directory of static files, or "". Files and directories whose
	// names begin with a dot are not served, and no directory is listed.
	Dir string
	// Fallback is the file in Dir that answers page requests that nothing else
	// does, as single-page applications want it, or "".
	Fallback string
	// Rate bounds the requests of one remote address; the zero Rate does not.
	Rate Rate
	// Replica is told in the Dwk-Replica header of every answer.
	Replica string
	Logger  *slog.Logger
	// Done, when not nil, is called after each request, on its goroutine.
	Done func(Access)
}

// Public is the handler of the public listener. What a path leads to is
// decided in this order: health, well-known names, the mount with the longest
// path, static files, the fallback file, 404.
type Public struct {
	shell     shell
	base      *url.URL
	basePath  []string
	mounts    []mount // longest path first
	wellKnown map[string]http.Handler
	health    http.Handler
	static    *static  // nil without a directory
	limiter   *limiter // nil without a rate
}

type mount struct {
	Mount
	segments []string
}

// NewPublic checks the configuration and opens the directory of static files.
// The caller closes the handler after its last request.
func NewPublic(cfg PublicConfig) (*Public, error) {
	if cfg.BaseURL == nil || cfg.BaseURL.Host == "" || (cfg.BaseURL.Scheme != "http" && cfg.BaseURL.Scheme != "https") {
		return nil, errors.New("base URL must be an http or https URL with a host")
	}
	basePath, err := splitFixed("/" + strings.Trim(cfg.BaseURL.Path, "/"))
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	mounts, err := newMounts(cfg.Mounts)
	if err != nil {
		return nil, err
	}
	p := &Public{
		shell: shell{
			replica: cfg.Replica, log: orDiscard(cfg.Logger), done: cfg.Done,
			defaults: publicHeaders(cfg.BaseURL.Scheme == "https"),
		},
		base: cfg.BaseURL, basePath: basePath, mounts: mounts,
		wellKnown: cfg.WellKnown, health: cfg.Health, limiter: newLimiter(cfg.Rate),
	}
	switch {
	case cfg.Dir != "":
		if p.static, err = openStatic(cfg.Dir, cfg.Fallback); err != nil {
			return nil, err
		}
	case cfg.Fallback != "":
		return nil, errors.New("a fallback file needs a directory of static files")
	}
	return p, nil
}

// Close closes the directory of static files.
func (p *Public) Close() error {
	if p.static == nil {
		return nil
	}
	return p.static.root.Close()
}

// publicHeaders are the answers' headers where the application sets no others.
func publicHeaders(https bool) http.Header {
	h := http.Header{
		"X-Content-Type-Options": {"nosniff"},
		// Not "no-referrer": with that browsers send "Origin: null" in an
		// application's own forms, and its check of Origin refuses them.
		"Referrer-Policy":         {"same-origin"},
		"Content-Security-Policy": {"frame-ancestors 'self'"},
	}
	if https {
		h["Strict-Transport-Security"] = []string{"max-age=31536000"}
	}
	return h
}

func newMounts(list []Mount) ([]mount, error) {
	var mounts []mount
	for _, m := range list {
		segments, err := splitFixed(m.Path)
		if err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
		if m.Handler == nil {
			return nil, fmt.Errorf("mount %s has no handler", m.Path)
		}
		if len(segments) > 0 && slices.Contains(reserved, segments[0]) {
			return nil, fmt.Errorf("mount %s: the path is reserved", m.Path)
		}
		if slices.ContainsFunc(mounts, func(o mount) bool { return o.Path == m.Path }) {
			return nil, fmt.Errorf("two mounts at %s", m.Path)
		}
		mounts = append(mounts, mount{m, segments})
	}
	slices.SortStableFunc(mounts, func(a, b mount) int { return len(b.segments) - len(a.segments) })
	return mounts, nil
}

// reserved are first segments that no mount may take.
var reserved = []string{".well-known", strings.TrimPrefix(HealthPath, "/"), strings.TrimPrefix(ReadyPath, "/")}

func (p *Public) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.shell.serve(w, r, p.route)
}

func (p *Public) route(w *response, r *http.Request) {
	path, err := parsePath(r.URL.EscapedPath())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if len(p.basePath) > 0 && path.under(p.basePath) {
		path = path.below(len(p.basePath))
	}
	if whole := path.path(); p.health != nil && (whole == HealthPath || whole == ReadyPath) {
		w.mount, w.quiet = "health", true
		p.health.ServeHTTP(w, rewrite(r, p.base, path))
		return
	}
	if wait, ok := p.limiter.allow(r.RemoteAddr); !ok {
		w.Header().Set("Retry-After", strconv.Itoa(wait))
		fail(w, http.StatusTooManyRequests, "too many requests")
		return
	}
	if len(path.names) >= 2 && path.names[0] == ".well-known" {
		if h := p.wellKnown[path.names[1]]; h != nil {
			w.mount = "well-known"
			h.ServeHTTP(w, rewrite(r, p.base, path))
			return
		}
	}
	for _, m := range p.mounts {
		if path.under(m.segments) {
			p.serveMount(w, r, m, path)
			return
		}
	}
	if p.static == nil {
		fail(w, http.StatusNotFound, "not found")
		return
	}
	w.mount = "static"
	p.static.serve(w, r, path, p.publicPath)
}

func (p *Public) serveMount(w *response, r *http.Request, m mount, path reqPath) {
	w.mount = m.Path
	bare := len(m.segments) > 0 && len(path.names) == len(m.segments)
	if bare && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		// Relative links of the mount's page need the slash.
		redirect(w, r, p.publicPath(path.escaped()+"/"))
		return
	}
	r = rewrite(r, p.base, path.below(len(m.segments)))
	if m.BodyLimit > 0 {
		if r.ContentLength > m.BodyLimit {
			w.Header().Set("Connection", "close")
			fail(w, http.StatusRequestEntityTooLarge, "body too large")
			return
		}
		// The server's own writer lets it close the connection.
		r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, m.BodyLimit)
	}
	defer func() {
		// The server looks for uploads on disk in its own copy of the request only.
		if r.MultipartForm != nil {
			r.MultipartForm.RemoveAll() //nolint:errcheck // left to the system's temporary directory
		}
	}()
	m.Handler.ServeHTTP(w, r)
}

// publicPath returns the path of the public URL of an escaped path of this
// handler.
func (p *Public) publicPath(escaped string) string {
	if len(p.basePath) == 0 {
		return escaped
	}
	return (&url.URL{Path: "/" + strings.Join(p.basePath, "/")}).EscapedPath() + escaped
}

// redirect sends the client to a path of the same host, with the same query.
func redirect(w http.ResponseWriter, r *http.Request, path string) {
	if r.URL.RawQuery != "" {
		path += "?" + r.URL.RawQuery
	}
	w.Header().Set("Location", path)
	w.WriteHeader(http.StatusPermanentRedirect)
}

func orDiscard(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
