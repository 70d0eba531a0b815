package remotestorage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// Headers between the front door and a Vault. Clients' own never get there.
const (
	headerBlob     = "Rs-Blob"     // key of a body in the bucket
	headerSize     = "Rs-Size"     // its size, in bytes, -1 when it is not known yet
	headerStage    = "Rs-Stage"    // "begin" before the body is in the bucket
	headerRoom     = "Rs-Room"     // how large it may be, in bytes, when there is a quota
	headerGone     = "Rs-Gone"     // the account is not this Vault's any more
	headerDocument = "Rs-Document" // the answer is a document
)

const (
	storeMethods = "GET, HEAD, PUT, DELETE, OPTIONS"
	// standstill is how long a body may make no progress.
	standstill = time.Minute
	// maxRanges is how many parts of a document are sent at once; who asks for more
	// gets the whole. Each is a request to the bucket.
	maxRanges = 16
)

// cors lets pages of any site see an answer of the store, whatever its status:
// access is by a token that only the page of the right application has.
func cors(h http.Header, r *http.Request) {
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", "*")
	if origin := r.Header.Get("Origin"); origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
	}
	h.Set("Access-Control-Expose-Headers", "ETag, Content-Type, Content-Length, Last-Modified, WWW-Authenticate, Retry-After, Accept-Ranges, Content-Range")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", storeMethods)
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Length, Content-Type, If-Match, If-None-Match, Origin, Range, If-Range, X-Requested-With")
		h.Set("Access-Control-Max-Age", "7200")
	}
}

// A storeRequest is a request for something in a store.
type storeRequest struct {
	account string
	escaped string // path below the store's root, as it was sent
	path    docPath
	token   string // "" without one
}

func (f *front) serveStore(w http.ResponseWriter, r *http.Request, rest string) {
	h := w.Header()
	cors(h, r)
	// What is stored may be a page of a stranger: it must not run as one of ours.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if f.places.misdirected(r, true) {
		text(w, http.StatusMisdirectedRequest, "the store is at another host name")
		return
	}
	account, path, _ := strings.Cut(rest, "/")
	q := storeRequest{escaped: "/" + path}
	q.account, _ = accountName(account)
	var err error
	if q.path, err = parsePath(q.escaped); err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errLongPath) {
			status = http.StatusRequestURITooLong
		}
		text(w, status, err.Error())
		return
	}
	h.Set("Cache-Control", "no-cache")
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
	default:
		h.Set("Allow", storeMethods)
		text(w, http.StatusMethodNotAllowed, "method not allowed")
		return
	}
	if wait, ok := f.throttle.allow(r); !ok {
		tooMany(w, wait)
		return
	}
	if authorization := r.Header.Get("Authorization"); authorization != "" {
		scheme, token, _ := strings.Cut(authorization, " ")
		if q.token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || q.token == "" {
			unauthorized(w, f.places, true)
			f.throttle.failed(r)
			return
		}
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case q.token == "" && !(read && q.path.isPublic()):
		// The same to the byte whether there is something or not.
		h["X-Request-Id"], h["Dwk-Replica"] = nil, nil
		unauthorized(w, f.places, false)
	case !read && q.path.isFolder():
		text(w, http.StatusBadRequest, "a folder comes and goes with its documents")
	case r.Method == http.MethodPut:
		f.servePut(w, r, q)
	default:
		f.forward(w, r, q)
	}
}

func unauthorized(w http.ResponseWriter, p places, sent bool) {
	challenge := fmt.Sprintf("Bearer realm=%q", p.storage.Host)
	if sent {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	text(w, http.StatusUnauthorized, "an access token is needed")
}

func tooMany(w http.ResponseWriter, wait int) {
	w.Header().Set("Retry-After", strconv.Itoa(wait))
	text(w, http.StatusTooManyRequests, "too many failures")
}

// ask sends a request to the Vault of an account, once more when it was sent
// to one that has been the account's.
func (f *front) ask(r *http.Request, q storeRequest, method string, header http.Header, body []byte) (*http.Response, error) {
	for again := true; ; again = false {
		id, err := f.accounts.vault(r.Context(), q.account)
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(r.Context(), method, "http://vault/store"+q.escaped, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", durable.ErrInvalid, err)
		}
		maps.Copy(req.Header, header)
		resp, err := f.vaults.get(id).Do(req)
		if err != nil || resp.Header.Get(headerGone) == "" {
			return resp, err
		}
		resp.Body.Close() //nolint:errcheck // nothing in it
		f.accounts.forget(q.account)
		if !again {
			return nil, errNoAccount
		}
	}
}

// storeHeader is what a Vault sees of a client's headers.
func storeHeader(r *http.Request) http.Header {
	out := http.Header{}
	for _, name := range []string{"Authorization", "Content-Type", "If-Match", "If-None-Match"} {
		if v := r.Header.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// forward has the Vault answer, and adds the body when that is in the bucket.
func (f *front) forward(w http.ResponseWriter, r *http.Request, q storeRequest) {
	resp, err := f.ask(r, q, r.Method, storeHeader(r), nil)
	if err != nil {
		f.fail(w, r, q, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK && resp.Header.Get(headerDocument) != "" {
		f.serveDocument(w, r, q, resp)
		return
	}
	f.answer(w, r, q, resp)
}

// answer passes on what a Vault said.
func (f *front) answer(w http.ResponseWriter, r *http.Request, q storeRequest, resp *http.Response) {
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusNotFound && q.token == "" {
		f.stranger(w, r, q) // to the byte, which the Vault's answer is not
		return
	}
	f.count(r, q, resp.StatusCode)
	copyHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // a cut body must not look like a whole one
	}
}

// stranger answers whoever has no token that is good here, and asks for nothing
// that is there: the same whether there is such an account or not, so that names
// cannot be tried.
func (f *front) stranger(w http.ResponseWriter, r *http.Request, q storeRequest) {
	if q.token == "" {
		f.count(r, q, http.StatusNotFound)
		text(w, http.StatusNotFound, "not found")
		return
	}
	f.count(r, q, http.StatusUnauthorized)
	unauthorized(w, f.places, true)
}

// count has guesses of tokens and of public names slow down the guesser.
func (f *front) count(r *http.Request, q storeRequest, status int) {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusNotFound && q.token == "":
		f.throttle.failed(r)
	case status < 400 && q.token != "":
		f.throttle.knows(q.token)
	}
}

func copyHeader(to, from http.Header) {
	for name, v := range from {
		if !strings.HasPrefix(name, "Rs-") {
			to[name] = v
		}
	}
}

// serveDocument answers with a document or the parts that are asked for.
func (f *front) serveDocument(w http.ResponseWriter, r *http.Request, q storeRequest, resp *http.Response) {
	f.count(r, q, http.StatusOK)
	h := w.Header()
	copyHeader(h, resp.Header)
	h.Del("Content-Length") // that of the Vault's answer
	size, err := strconv.ParseInt(resp.Header.Get(headerSize), 10, 64)
	if err != nil {
		panic(fmt.Errorf("size of a document: %w", err))
	}
	var content io.ReadSeeker
	if key := resp.Header.Get(headerBlob); key != "" || r.Method == http.MethodHead {
		b := &blobReader{ctx: r.Context(), bucket: f.bucket, key: key, size: size, stall: newStall(http.NewResponseController(w).SetWriteDeadline)}
		defer b.close()
		content = b
		if key != "" && r.Method != http.MethodHead {
			if err := b.open(0); err != nil { // before a status is sent
				f.fail(w, r, q, err)
				return
			}
		}
	} else {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		content = bytes.NewReader(body)
	}
	if r.Method == http.MethodHead || strings.Count(strings.Join(r.Header.Values("Range"), ","), ",") >= maxRanges {
		r.Header.Del("Range")
	}
	// It knows conditions and ranges. The time is not passed: the version decides.
	http.ServeContent(w, r, "", time.Time{}, content)
	if b, ok := content.(*blobReader); ok && b.err != nil && !errors.Is(b.err, io.EOF) {
		f.log.WarnContext(r.Context(), "a body broke off", "key", b.key, "error", b.err)
		panic(http.ErrAbortHandler)
	}
}

// fail answers for a request that no Vault has answered.
func (f *front) fail(w http.ResponseWriter, r *http.Request, q storeRequest, err error) {
	h := w.Header()
	for _, name := range []string{"ETag", "Content-Type", "Content-Length", "Last-Modified", "Accept-Ranges"} {
		h.Del(name)
	}
	if errors.Is(err, errNoAccount) {
		f.stranger(w, r, q)
		return
	}
	status, line := hostStatus(err)
	switch status {
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	case http.StatusGatewayTimeout:
		h.Set("Dwk-Outcome", "unknown")
	}
	if r.Context().Err() == nil {
		f.log.WarnContext(r.Context(), "a request failed", "method", r.Method, "status", status, "error", err)
	}
	text(w, status, line)
}

// servePut takes a document: a small body goes to the Vault with the request,
// a larger one to the bucket, between two events.
func (f *front) servePut(w http.ResponseWriter, r *http.Request, q storeRequest) {
	if r.Header.Get("Content-Range") != "" {
		text(w, http.StatusBadRequest, "a part of a document cannot be put")
		return
	}
	if t := r.Header.Get("Content-Type"); !validType(t) {
		text(w, http.StatusBadRequest, "bad Content-Type")
		return
	}
	if r.ContentLength > f.settings.MaxDocument {
		w.Header().Set("Connection", "close")
		text(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a document has %d bytes at most", f.settings.MaxDocument))
		return
	}
	rc := http.NewResponseController(w)
	body := &putBody{Reader: http.MaxBytesReader(w, r.Body, f.settings.MaxDocument), stall: newStall(rc.SetReadDeadline)}
	defer body.stall.stop()
	header := storeHeader(r)
	var start []byte
	if r.ContentLength <= f.settings.InlineLimit { // or not known
		var err error
		start, err = io.ReadAll(io.LimitReader(body, f.settings.InlineLimit+1))
		if err != nil {
			f.badBody(w, body.err)
			return
		}
		if int64(len(start)) <= f.settings.InlineLimit {
			resp, err := f.ask(r, q, http.MethodPut, header, start)
			if err != nil {
				f.fail(w, r, q, err)
				return
			}
			defer resp.Body.Close()
			f.answer(w, r, q, resp)
			return
		}
	}
	f.putLarge(w, r, q, header, io.MultiReader(bytes.NewReader(start), body), body)
}

func (f *front) putLarge(w http.ResponseWriter, r *http.Request, q storeRequest, header http.Header, whole io.Reader, body *putBody) {
	header.Set(headerStage, "begin")
	header.Set(headerSize, strconv.FormatInt(r.ContentLength, 10))
	resp, err := f.ask(r, q, http.MethodPut, header, nil)
	if err != nil {
		f.fail(w, r, q, err)
		return
	}
	defer resp.Body.Close()
	key := resp.Header.Get(headerBlob)
	if key == "" {
		w.Header().Set("Connection", "close") // rather than to take a body for nothing
		f.answer(w, r, q, resp)
		return
	}
	room := f.settings.MaxDocument
	if text := resp.Header.Get(headerRoom); text != "" {
		if room, err = strconv.ParseInt(text, 10, 64); err != nil {
			panic(fmt.Errorf("room for a document: %w", err))
		}
		room = max(room, 0)
		whole = io.LimitReader(whole, room+1)
	}
	info, err := f.bucket.Put(r.Context(), key, whole, durable.PutOptions{})
	if err != nil {
		f.unstage(q, key)
		if body.err != nil {
			f.badBody(w, body.err)
			return
		}
		f.fail(w, r, q, err)
		return
	}
	if info.Size > room { // it is not whole, so nobody else may judge it
		f.unstage(q, key)
		w.Header().Set("Connection", "close")
		text(w, http.StatusInsufficientStorage, quotaText)
		return
	}
	header.Set(headerStage, key)
	header.Set(headerSize, strconv.FormatInt(info.Size, 10))
	done, err := f.ask(r, q, http.MethodPut, header, nil)
	if err != nil {
		f.fail(w, r, q, err)
		return
	}
	defer done.Body.Close()
	f.answer(w, r, q, done)
}

// unstage has the Vault collect a body that did not get there whole, soon. When
// that fails it does so after the grace.
func (f *front) unstage(q storeRequest, key string) {
	f.env.Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if id, err := f.accounts.vault(ctx, q.account); err == nil {
			_ = f.vaults.call(ctx, id, "unstage", unstageRequest{Key: key}, nil) // see above
		}
	})
}

func (f *front) badBody(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		text(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a document has %d bytes at most", f.settings.MaxDocument))
		return
	}
	text(w, http.StatusBadRequest, "the body could not be read")
}

const (
	maxType     = 512 // bytes of a content type
	defaultType = "application/octet-stream"
)

// validType: a content type is stored as it is, and comes back in a header.
func validType(t string) bool {
	if len(t) > maxType {
		return false
	}
	for _, c := range []byte(t) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// putBody remembers why it could not be read, which is no fault of the store,
// and gives up when nothing comes. That the bucket takes its time is no fault of
// the client's.
type putBody struct {
	io.Reader
	stall *stall
	err   error
}

func (b *putBody) Read(p []byte) (int, error) {
	b.stall.moved()
	n, err := b.Reader.Read(p)
	b.stall.rest()
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// A stall ends a connection that has stood still for too long.
type stall struct {
	set   func(time.Time) error
	timer *time.Timer
	over  atomic.Bool
}

// newStall takes what sets the deadline of the connection's reads or writes.
func newStall(set func(time.Time) error) *stall {
	s := &stall{set: set}
	s.timer = time.AfterFunc(standstill, func() {
		s.over.Store(true)
		_ = set(time.Unix(1, 0)) // not every writer has a deadline
	})
	s.timer.Stop() // until something moves
	return s
}

func (s *stall) moved() { s.timer.Reset(standstill) }

// rest waits for nothing, until something moves again.
func (s *stall) rest() { s.timer.Stop() }

// stop leaves the connection to the next request.
func (s *stall) stop() {
	s.timer.Stop()
	if !s.over.Load() {
		_ = s.set(time.Time{}) // as above
	}
}

// A blobReader reads a body of the bucket from wherever it is told to.
type blobReader struct {
	ctx    context.Context
	bucket durable.Bucket
	key    string
	size   int64
	stall  *stall

	at   int64 // where the reader stands
	body io.ReadCloser
	from int64 // where body stands
	err  error
}

func (b *blobReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	b.at = offset
	return offset, nil
}

func (b *blobReader) open(at int64) error {
	if b.body != nil {
		b.body.Close() //nolint:errcheck // only read from
		b.body = nil
	}
	if at >= b.size {
		return nil
	}
	body, info, err := b.bucket.Get(b.ctx, b.key, durable.GetOptions{Offset: at})
	if err != nil {
		return fmt.Errorf("body %s: %w", b.key, err)
	}
	if info.Size != b.size {
		body.Close() //nolint:errcheck // only read from
		return fmt.Errorf("body %s has %d bytes, want %d", b.key, info.Size, b.size)
	}
	b.body, b.from = body, at
	return nil
}

func (b *blobReader) Read(p []byte) (int, error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	b.stall.moved()
	if b.body == nil || b.from != b.at {
		if b.err = b.open(b.at); b.err != nil {
			return 0, b.err
		}
	}
	n, err := b.body.Read(p)
	b.at += int64(n)
	b.from = b.at
	if err != nil && (err != io.EOF || b.at < b.size) {
		b.err = err
		if err == io.EOF {
			b.err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (b *blobReader) close() {
	b.stall.stop()
	if b.body != nil {
		b.body.Close() //nolint:errcheck // only read from
	}
}

// accountName reads the name in a path.
func accountName(escaped string) (string, bool) {
	name, err := url.PathUnescape(escaped)
	return name, err == nil && validName(name)
}
