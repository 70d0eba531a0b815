package hrana

import (
	"context"
	"net/http"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// A Request is what a hook sees of a pipeline or cursor before it is executed.
type Request struct {
	Path string
	// SQL holds the texts of all statements in order; that of a stored text is
	// "".
	SQL []string
}

// A Fault is what a hook makes of a request. The zero Fault lets it pass. A
// hook delays a request by waiting itself.
type Fault struct {
	// Status, if not 0, is answered instead of executing.
	Status int
	// Busy has the first statement that writes find that the database is locked.
	Busy bool
	// CutBefore cuts the connection instead of executing.
	CutBefore bool
	// After, if not nil, is called after executing, before answering.
	After func(context.Context)
	// CutAfter cuts the connection after executing: the answer is lost.
	CutAfter bool
}

// SetHook makes every later pipeline and cursor pass through hook, for tests;
// nil ends that. It may be called at any time.
func (s *Server) SetHook(hook func(context.Context, Request) Fault) {
	if hook == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&hook)
}

// ExpireStreams ends all streams that no request uses, as if they had been idle
// for too long.
func (s *Server) ExpireStreams() { s.streams.expire() }

// ForgetStreams is ExpireStreams, and makes all batons invalid, as a restart
// does.
func (s *Server) ForgetStreams() { s.streams.forget() }

// Streams returns how many streams are open, in use or idle.
func (s *Server) Streams() int {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	n := 0
	for _, st := range s.streams.byID {
		if !st.expired {
			n++
		}
	}
	return n
}

// before runs the hook and does what comes before executing; done is true when
// the request ends here.
func (s *Server) before(w http.ResponseWriter, r *http.Request, requests []proto.Request) (f Fault, done bool) {
	hook := s.hook.Load()
	if hook == nil {
		return f, false
	}
	seen := Request{Path: r.URL.Path}
	for i := range requests {
		seen.SQL = appendSQL(seen.SQL, &requests[i])
	}
	f = (*hook)(r.Context(), seen)
	if f.CutBefore {
		cut()
	}
	if f.Status != 0 {
		sendError(w, f.Status, http.StatusText(f.Status))
	}
	return f, f.Status != 0
}

// after does what comes between executing and answering.
func (f Fault) after(ctx context.Context) {
	if f.After != nil {
		f.After(ctx)
	}
}

// cut closes the connection without an answer.
func cut() { panic(http.ErrAbortHandler) }
