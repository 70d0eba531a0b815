package fleettest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// slowSize is more than the systems between a replica and a slow client keep.
const slowSize = 12 << 20

// uploads and downloads to and from an object and a bucket go on while a replica
// stops, which says what it waits for, and all are whole.
func TestDrainWaitsForSlowClients(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f, a, b := startPair(t, kind, steadyLeases)
		large, small := string(content(1, slowSize)), content(2, 64<<10)
		for _, path := range []string{"note/large", "bucket/large"} {
			if ans := b.Do(http.MethodPut, path, large); ans.Status/100 != 2 {
				t.Fatal(ans)
			}
		}
		const takes = 6 * time.Second // all begin before one has ended
		answers := map[string]chan Answer{}
		for _, path := range []string{"note/large", "bucket/large", "note/small", "bucket/small"} {
			c := make(chan Answer, 1)
			answers[path] = c
			go func() {
				if strings.HasSuffix(path, "large") {
					c <- a.Download(t.Context(), path, len(large), takes)
				} else {
					c <- a.Upload(t.Context(), path, small, takes)
				}
			}()
		}
		Eventually(t, "all are under way", func() bool { return a.figure("dwk_http_requests_running") == 4 })
		a.Terminate()
		for path, c := range answers {
			ans := <-c
			if ans.Status/100 != 2 || strings.HasSuffix(path, "large") && ans.Body != large {
				t.Errorf("%s: %d, %d bytes, %v", path, ans.Status, len(ans.Body), ans.Err)
			}
		}
		wantExit(t, a, 0)
		for _, path := range []string{"note/small", "bucket/small"} {
			if ans := b.Get(path); ans.Body != string(small) {
				t.Errorf("%s: %d, %d bytes", path, ans.Status, len(ans.Body))
			}
		}
		wantNoLease(t, f, a)
	})
}

// What slow clients have not finished when the time of a stop is over is named
// and cut off, and nothing of it is there.
func TestDrainCutsSlowClients(t *testing.T) {
	t.Parallel()
	f := New(t, Wire)
	a, b := f.Start(), f.Start()
	if ans := b.Do(http.MethodPut, "bucket/large", string(content(1, slowSize))); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	down, up, file := make(chan Answer, 1), make(chan Answer, 1), make(chan Answer, 1)
	go func() { down <- a.Download(ctx, "bucket/large", slowSize, 15*time.Second) }()
	go func() { up <- a.Upload(ctx, "note/n", content(2, 64<<10), time.Minute) }()
	go func() { file <- a.Upload(ctx, "bucket/file", content(2, 64<<10), time.Minute) }()
	Eventually(t, "all are under way", func() bool { return a.figure("dwk_http_requests_running") == 3 })
	outcome, detail := f.drain(a, 1, "--wait", "--drain-timeout", "2s")
	if want := "3 requests running (2 still receive their bodies, 1 still send their answers)"; outcome != "not finished" || !strings.Contains(detail, want) {
		t.Errorf("%s: %s, want %s", outcome, detail, want)
	}
	wantExit(t, a, 1)
	for _, c := range []chan Answer{down, up, file} {
		if ans := <-c; ans.Err == nil {
			t.Error(ans)
		}
	}
	for _, path := range []string{"note/n", "bucket/file"} {
		if ans := b.Get(path); ans.Status != http.StatusNotFound {
			t.Errorf("%s is there: %v", path, ans)
		}
	}
	wantNoLease(t, f, a)
}

// Clients that are too slow are ended: they keep no lease, no memory for long,
// and nobody from stopping the replica.
func TestTooSlowClients(t *testing.T) {
	t.Parallel()
	f := New(t, File, steadyLeases, "DWK_CLIENTS_STALL=700ms", "DWK_CLIENTS_SEND_TIMEOUT=1s")
	r := f.Start()
	if ans := f.Start("DWK_CLIENTS_STALL=1m", "DWK_CLIENTS_SEND_TIMEOUT=1m").Do(http.MethodPut, "note/large", string(content(1, slowSize))); ans.Status != http.StatusCreated {
		t.Fatal(ans)
	}
	for _, path := range []string{"note/x", "bucket/x"} {
		if ans := r.Upload(t.Context(), path, content(1, 300), 10*time.Minute); ans.Status != http.StatusRequestTimeout {
			t.Errorf("%s: %v", path, ans)
		}
		if ans := r.Get(path); ans.Status != http.StatusNotFound {
			t.Errorf("%s: %v", path, ans)
		}
	}
	// One that reads nothing keeps its connection.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.Public+"/lab/note/large", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := slowClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	Eventually(t, "its answer is cut off", func() bool { return r.figure("dwk_http_requests_running") == 0 })
	if n, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Errorf("%d bytes came", n)
	}
	r.Terminate()
	wantExit(t, r, 0)
	wantNoTrace(t, f, "dwk_lease")
}
