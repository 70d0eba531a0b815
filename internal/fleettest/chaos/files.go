package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/davidwkeith/dwk/internal/fleettest"
)

// A file is a key of the bucket that one client at a time changes.
type file struct {
	mu  sync.Mutex
	key string
	// body is what was last acknowledged, "" when there is none, and doubt what
	// may be there instead. With doubt it is not changed any more.
	body  string
	doubt []string
	// wrong is what was read and must not be there.
	wrong []string
	puts  int
}

// absent is how a key without body is read.
const absent = ""

// useFile puts, gets or deletes a file.
func (s *stage) useFile(to caller, write int, random *rand.Rand) fleettest.Answer {
	f := s.file(random)
	defer f.mu.Unlock()
	path := "bucket/" + f.key
	if write <= 1 {
		a := to.Do(http.MethodGet, path, "")
		f.saw(a)
		return a
	}
	next, method := absent, http.MethodDelete
	if write > 2 || f.body == absent {
		f.puts++
		next, method = fmt.Sprintf("%s put %d %s", f.key, f.puts, string(slices.Repeat([]byte{'+'}, random.IntN(4000)))), http.MethodPut
	}
	a := to.Do(method, path, next)
	switch {
	case a.Status/100 == 2:
		f.body = next
	case a.Unknown() || a.Status == 0:
		f.doubt = append(f.doubt, next)
	case !a.Refused():
		f.wrong = append(f.wrong, fmt.Sprintf("%s was answered %v", method, a))
	}
	return a
}

// saw compares what was read with what may be there.
func (f *file) saw(a fleettest.Answer) {
	got := absent
	switch {
	case a.Status == http.StatusOK:
		got = a.Body
	case a.Status == http.StatusNotFound:
	case a.Refused(), a.Unknown(), a.Status == 0:
		return
	default:
		f.wrong = append(f.wrong, fmt.Sprintf("a get was answered %v", a))
		return
	}
	if got != f.body && !slices.Contains(f.doubt, got) {
		f.wrong = append(f.wrong, fmt.Sprintf("it is %.60q, and may be %.60q or %.60q", got, f.body, f.doubt))
	}
}

// file returns a file that nobody uses, locked, and whose state is known: a new
// one unless one is found soon.
func (s *stage) file(random *rand.Rand) *file {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 8 {
		if len(s.files) < 20 {
			break
		}
		if f := s.files[random.IntN(len(s.files))]; f.mu.TryLock() {
			if len(f.doubt) == 0 {
				return f
			}
			f.mu.Unlock()
		}
	}
	f := &file{key: s.w.name("file")}
	f.mu.Lock()
	s.files = append(s.files, f)
	return f
}
