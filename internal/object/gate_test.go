package object

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/davidwkeith/dwk/internal/spool"
)

// TestFlushedHeaderStays: a header that a handler flushed is the answer, also
// when the event has failed before the caller looks. Else a caller that is slow
// would be told of a failure where a quick one sees a cut body.
func TestFlushedHeaderStays(t *testing.T) {
	failed := errors.New("on purpose")
	for _, flush := range []bool{true, false} {
		g := newGate(spool.Config{Memory: 1024, Limit: 1024, Dir: t.TempDir()})
		g.setFlush(func() error { return nil })
		g.WriteHeader(http.StatusAccepted)
		if flush {
			g.Flush()
		}
		g.finish(failed, nil)
		resp, err := g.response(httptest.NewRequest(http.MethodGet, "/", nil))
		if !flush {
			if !errors.Is(err, failed) {
				t.Errorf("not flushed: %v, %v", resp, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("flushed: %v", err)
		}
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("flushed: %d", resp.StatusCode)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, failed) {
			t.Errorf("flushed: the body ended with %v", err)
		}
		resp.Body.Close()
	}
}
