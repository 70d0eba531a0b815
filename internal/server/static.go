package server

import (
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
)

// static serves the files of one directory. [os.Root] keeps symbolic links
// from leading out of it.
type static struct {
	root     *os.Root
	fallback string
}

func openStatic(dir, fallback string) (*static, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open directory of static files: %w", err)
	}
	s := &static{root, fallback}
	if fallback != "" {
		f, _, err := s.open(fallback)
		if err != nil {
			root.Close() //nolint:errcheck // the other error says more
			return nil, fmt.Errorf("open fallback file: %w", err)
		}
		f.Close() //nolint:errcheck // only read
	}
	return s, nil
}

// serve answers with the file at the path, the index file of a directory, or
// the fallback. publicPath gives the path that a redirect names.
func (s *static) serve(w http.ResponseWriter, r *http.Request, p reqPath, publicPath func(string) string) {
	name, ok := fileName(p)
	if !ok {
		fail(w, http.StatusNotFound, "not found")
		return
	}
	info, err := s.root.Stat(name)
	slash := p.names[len(p.names)-1] == ""
	switch {
	case err == nil && info.IsDir():
		index := path.Join(name, "index.html")
		if info, err = s.root.Stat(index); err == nil && info.Mode().IsRegular() {
			if slash {
				s.file(w, r, index)
			} else {
				redirect(w, r, publicPath(p.escaped()+"/"))
			}
			return
		}
	case err == nil && !slash:
		s.file(w, r, name)
		return
	}
	if s.fallback != "" && wantsPage(r, name) {
		s.file(w, r, s.fallback)
		return
	}
	fail(w, http.StatusNotFound, "not found")
}

// file serves one regular file. Anything else than GET and HEAD is refused.
func (s *static) file(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(w, "GET, HEAD")
		return
	}
	f, info, err := s.open(name)
	if err != nil {
		fail(w, http.StatusNotFound, "not found")
		return
	}
	defer f.Close() //nolint:errcheck // only read
	h := w.Header()
	if t := contentType(name); t != "" {
		h.Set("Content-Type", t)
	}
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", fmt.Sprintf(`"%x-%x"`, info.ModTime().UnixNano(), info.Size()))
	http.ServeContent(w, r, name, info.ModTime(), f)
}

// open opens a regular file. It looks before it opens, because to open a named
// pipe is to wait for its writer.
func (s *static) open(name string) (*os.File, fs.FileInfo, error) {
	if info, err := s.root.Stat(name); err != nil {
		return nil, nil, err
	} else if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		f.Close() //nolint:errcheck // only read
		return nil, nil, err
	}
	return f, info, nil
}

// fileName returns the name of the file at a path, relative to the directory;
// ok is false for a path that no served file has.
func fileName(p reqPath) (name string, ok bool) {
	names := p.names
	if names[len(names)-1] == "" {
		names = names[:len(names)-1]
	}
	if len(names) == 0 {
		return ".", true
	}
	bad := slices.ContainsFunc(names, func(n string) bool {
		return n == "" || strings.HasPrefix(n, ".") || strings.ContainsAny(n, `/\`)
	})
	return strings.Join(names, "/"), !bad
}

// wantsPage tells a visit to a page from a request for a missing part of one:
// a page without its script must not get HTML in its place.
func wantsPage(r *http.Request, name string) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return path.Ext(name) == "" || name == "." || strings.Contains(r.Header.Get("Accept"), "text/html")
}

// types are content types that should not depend on the machine's tables.
var types = map[string]string{
	".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json",
	".txt": "text/plain; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".xml": "text/xml; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".avif": "image/avif", ".ico": "image/x-icon", ".pdf": "application/pdf",
	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf", ".wasm": "application/wasm",
	".mp3": "audio/mpeg", ".mp4": "video/mp4", ".webm": "video/webm",
}

// contentType returns "" when the name tells nothing and the content decides.
func contentType(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if t := types[ext]; t != "" {
		return t
	}
	return mime.TypeByExtension(ext)
}
