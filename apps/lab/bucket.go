package lab

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

const (
	// bucketName is the bucket binding that the lab requires.
	bucketName = "LAB_FILES"

	maxFile    = 5 << 30 // bytes of a body, as for one put to S3
	maxList    = 1000    // keys and prefixes of a page
	metaHeader = "X-Meta-"
)

// files serves the bucket. Metadata travels in headers, one for each name, with
// values in percent-encoding: headers hold no other text than ASCII.
type files struct {
	bucket durable.Bucket
	log    *slog.Logger
	limit  int64 // bytes of a body
}

func newFiles(env durable.Env) *files { return &files{env.Bucket(bucketName), env.Logger(), maxFile} }

// fileInfo is a body in answers.
type fileInfo struct {
	Key      string `json:"key"`
	Size     int64  `json:"size"`
	ETag     string `json:"etag"`
	Uploaded int64  `json:"uploaded,omitempty"` // epoch milliseconds
}

func newFileInfo(o durable.ObjectInfo) fileInfo {
	info := fileInfo{Key: o.Key, Size: o.Size, ETag: o.ETag}
	if !o.Uploaded.IsZero() {
		info.Uploaded = o.Uploaded.UnixMilli()
	}
	return info
}

func (f *files) serve(w http.ResponseWriter, r *http.Request, t target) {
	switch {
	case t.action == "list":
		f.serveList(w, r)
	case r.Method == http.MethodPut:
		f.servePut(w, r, t.name)
	case r.Method == http.MethodDelete:
		f.serveDelete(w, r, t.name)
	default:
		f.serveGet(w, r, t.name)
	}
}

func (f *files) serveList(w http.ResponseWriter, r *http.Request) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, http.StatusBadRequest, "the query cannot be read")
		return
	}
	limit, err := intParam(q, "limit", maxList, 1, maxList)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	page, err := f.bucket.List(r.Context(), durable.ListOptions{
		Prefix: q.Get("prefix"), Delimiter: q.Get("delimiter"), Cursor: q.Get("cursor"), Limit: int(limit),
	})
	if err != nil {
		f.fail(w, r, err)
		return
	}
	answer := struct {
		Objects  []fileInfo `json:"objects"`
		Prefixes []string   `json:"prefixes"`
		Cursor   string     `json:"cursor,omitempty"`
	}{make([]fileInfo, 0, len(page.Objects)), append([]string{}, page.Prefixes...), page.Cursor}
	for _, o := range page.Objects {
		answer.Objects = append(answer.Objects, newFileInfo(o))
	}
	writeJSON(w, http.StatusOK, answer)
}

func (f *files) servePut(w http.ResponseWriter, r *http.Request, key string) {
	opts := durable.PutOptions{ContentType: r.Header.Get("Content-Type")}
	var err error
	if opts.IfAbsent, err = ifAbsent(r.Header); err == nil {
		opts.Metadata, err = readMetadata(r.Header)
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	body := &requestBody{Reader: http.MaxBytesReader(w, r.Body, f.limit)}
	info, err := f.bucket.Put(r.Context(), key, body, opts)
	if _, large := errors.AsType[*http.MaxBytesError](body.err); large {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes", f.limit))
		return
	}
	if errors.Is(body.err, os.ErrDeadlineExceeded) {
		writeError(w, http.StatusRequestTimeout, "the body came too slowly")
		return
	}
	if body.err != nil {
		writeError(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	w.Header().Set("ETag", quote(info.ETag))
	writeJSON(w, http.StatusOK, newFileInfo(info))
}

// requestBody remembers why it could not be read, which is no fault of the
// store.
type requestBody struct {
	io.Reader
	err error
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

func (f *files) serveDelete(w http.ResponseWriter, r *http.Request, key string) {
	if len(r.Header.Values("If-Match"))+len(r.Header.Values("If-None-Match")) > 0 {
		writeError(w, http.StatusBadRequest, errCondition.Error())
		return
	}
	if err := f.bucket.Delete(r.Context(), key); err != nil {
		f.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *files) serveGet(w http.ResponseWriter, r *http.Request, key string) {
	part, ranged := parseRange(r.Header.Values("Range"))
	var body io.ReadCloser
	var info durable.ObjectInfo
	var err error
	if r.Method == http.MethodHead {
		ranged = false
		info, err = f.bucket.Head(r.Context(), key)
	} else {
		body, info, err = f.bucket.Get(r.Context(), key, part)
		if tag := r.Header.Get("If-Range"); err == nil && ranged && tag != "" && tag != quote(info.ETag) {
			body.Close() //nolint:errcheck // nothing was read
			part, ranged = durable.GetOptions{}, false
			body, info, err = f.bucket.Get(r.Context(), key, part)
		}
	}
	if err != nil {
		f.fail(w, r, err)
		return
	}
	if body != nil {
		defer body.Close()
	}
	writeFile(w, r, body, info, part, ranged)
}

// writeFile answers with a body, a part of it or, without one, its headers.
func writeFile(w http.ResponseWriter, r *http.Request, body io.Reader, info durable.ObjectInfo, part durable.GetOptions, ranged bool) {
	h := w.Header()
	h.Set("ETag", quote(info.ETag))
	h.Set("Cache-Control", "no-cache")
	h.Set("Accept-Ranges", "bytes")
	if matches(r.Header.Values("If-None-Match"), quote(info.ETag)) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	status, offset, length := http.StatusOK, int64(0), info.Size
	if ranged {
		offset, length = resolve(part, info.Size)
		if length == 0 {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
			writeError(w, http.StatusRequestedRangeNotSatisfiable, "the range has no byte of the body")
			return
		}
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, info.Size))
	}
	for name, value := range info.Metadata {
		h.Set(metaHeader+name, url.PathEscape(value))
	}
	h.Set("Content-Type", info.ContentType)
	h.Set("Content-Length", fmt.Sprint(length))
	// A body is whatever somebody put there: it must not run as a page of ours.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if body == nil {
		return
	}
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler) // a part of a body must not look like one
	}
}

// fail answers for an error of the bucket.
func (f *files) fail(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, durable.ErrNotFound):
		writeError(w, http.StatusNotFound, "no such key")
	case errors.Is(err, durable.ErrPrecondition):
		writeError(w, http.StatusPreconditionFailed, "the key exists")
	case errors.Is(err, durable.ErrInvalid):
		writeError(w, http.StatusBadRequest, err.Error())
	case errors.Is(err, durable.ErrReadOnly):
		writeError(w, http.StatusForbidden, "the bucket is read-only")
	case errors.Is(err, durable.ErrTooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, durable.ErrUnknownOutcome):
		f.log.WarnContext(r.Context(), "bucket failed", "method", r.Method, "error", err)
		w.Header().Set("Dwk-Outcome", "unknown")
		writeError(w, http.StatusGatewayTimeout, "the bucket did not answer: it is not known what it has done")
	case r.Context().Err() != nil, errors.Is(err, durable.ErrUnavailable):
		if r.Context().Err() == nil { // the client is there to be told
			f.log.WarnContext(r.Context(), "bucket failed", "method", r.Method, "error", err)
		}
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusServiceUnavailable, "the bucket cannot be used, nothing was changed")
	default:
		f.log.ErrorContext(r.Context(), "bucket failed", "method", r.Method, "error", err)
		writeError(w, http.StatusInternalServerError, "the bucket failed")
	}
}

var errCondition = errors.New("the only condition is If-None-Match: * with PUT")

func ifAbsent(h http.Header) (bool, error) {
	condition := h.Values("If-None-Match")
	if len(h.Values("If-Match")) > 0 || len(condition) > 0 && (len(condition) > 1 || strings.TrimSpace(condition[0]) != "*") {
		return false, errCondition
	}
	return len(condition) == 1, nil
}

func readMetadata(h http.Header) (map[string]string, error) {
	var metadata map[string]string
	for name, values := range h {
		name, ok := strings.CutPrefix(name, metaHeader)
		if !ok {
			continue
		}
		value, err := url.PathUnescape(strings.Join(values, ", "))
		if err != nil {
			return nil, fmt.Errorf("the value of %s%s is not percent-encoded", metaHeader, name)
		}
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[name] = value
	}
	return metadata, nil
}

func quote(etag string) string { return `"` + etag + `"` }
