package fleettest

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// newStorage is a fleet that serves the remoteStorage application at /rs, with
// one account, alice, and one token for all of it.
func newStorage(t *testing.T, kind Kind, settings string, env ...string) (f *Fleet, first *Replica, token string) {
	t.Helper()
	f = New(t, kind, env...)
	file, err := os.OpenFile(f.config(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, `databases: [{name: RS_ACCOUNTS}]
buckets: [{name: RS_BODIES}]
caches: [{name: RS_CACHE}]
queues: [{name: remotestorage}]
crons: []
mounts: [{path: /rs, app: remotestorage, settings: %s}]
`, settings)
		err = firstError(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	first = f.Start()
	var made struct{ Token string }
	f.JSON(&made, "app", "remotestorage", "create", "alice")
	f.JSON(&made, "app", "remotestorage", "token", "alice", "*:rw")
	return f, first, made.Token
}

// store is a client of alice's store.
type store struct {
	t     *testing.T
	token string
	url   func() string // of the next request's server
}

func (s *store) do(method, path, body string, headers ...string) Answer {
	return send(s.t.Context(), method, s.url()+"/rs/store/alice"+path, body, append(headers, "Authorization", "Bearer "+s.token)...)
}

// A document as it may be: tag is "" when it is not known, and gone when it may
// not be there.
type document struct {
	tag, body string
	gone      bool
}

// syncer changes documents of a folder of its own, one request at a time, and
// knows what may be there after each answer.
type syncer struct {
	store
	folder string
	docs   map[string][]document
	acked  atomic.Int64
}

const storageLimit = 2000 // bytes of what is kept in the object

func (s *syncer) step(random *rand.Rand, n int) {
	name := fmt.Sprintf("d%d", random.IntN(4))
	if random.IntN(3) == 0 {
		name = "sub/" + name
	}
	path := s.folder + name
	old := s.docs[name]
	body := fmt.Sprintf("%s %d ", path, n)
	if random.IntN(3) == 0 {
		body += strings.Repeat("large ", storageLimit)
	}
	method, next := http.MethodPut, document{body: body}
	var headers []string
	if len(old) == 1 && old[0].tag != "" {
		headers = []string{"If-Match", old[0].tag}
		if random.IntN(5) == 0 {
			method, next, body = http.MethodDelete, document{gone: true}, ""
		}
	} else if len(old) == 1 && old[0].gone {
		headers = []string{"If-None-Match", "*"}
	}
	switch a := s.do(method, path, body, headers...); {
	case a.Status == http.StatusOK || a.Status == http.StatusCreated:
		if next.gone {
			s.docs[name] = []document{{gone: true}}
		} else {
			s.docs[name] = []document{{tag: a.Header.Get("ETag"), body: body}}
		}
		s.acked.Add(1)
	case a.Refused():
	case a.Status == 0 || a.Status == http.StatusBadGateway || a.Status == http.StatusGatewayTimeout:
		s.docs[name] = append(old, next)
		s.look(name)
	default:
		s.t.Errorf("%s %s %v, of %+v: %v", method, path, headers, old, a)
	}
}

// look finds out which of the documents it is.
func (s *syncer) look(name string) {
	deadline := time.Now().Add(2 * patience)
	for {
		a := s.do(http.MethodGet, s.folder+name, "")
		switch a.Status {
		case http.StatusOK, http.StatusNotFound:
			for _, d := range s.docs[name] {
				if d.gone && a.Status == http.StatusNotFound || !d.gone && a.Status == http.StatusOK && a.Body == d.body && (d.tag == "" || d.tag == a.Header.Get("ETag")) {
					s.docs[name] = []document{{tag: a.Header.Get("ETag"), body: d.body, gone: d.gone}}
					return
				}
			}
			s.t.Errorf("%s%s is %d %s %.40q, want one of %.200v", s.folder, name, a.Status, a.Header.Get("ETag"), a.Body, s.docs[name])
			return
		}
		if time.Now().After(deadline) {
			s.t.Errorf("%s%s cannot be read: %v", s.folder, name, a)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// watch reads folders and documents until stop, and fails when one version has
// two contents.
func (s *store) watch(folders []string, stop <-chan struct{}) {
	seen := map[string]string{}
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		path := folders[i%len(folders)]
		a := s.do(http.MethodGet, path, "")
		if a.Status != http.StatusOK {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		key := path + a.Header.Get("ETag")
		if before, ok := seen[key]; ok && before != a.Body {
			s.t.Errorf("%s has one version and two contents: %s, %s", path, before, a.Body)
		}
		seen[key] = a.Body
	}
}

// Clients sync with a fleet of two while one replica after the other is killed
// and comes back: what was answered is there, every version is of one content,
// and no body is left over.
func TestStorageSurvivesKills(t *testing.T) {
	t.Parallel()
	kinds := []Kind{Wire}
	if Long(1, 0) == 1 {
		kinds = []Kind{File, Wire}
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) { storageSurvivesKills(t, kind) })
	}
}

func storageSurvivesKills(t *testing.T, kind Kind) {
	const grace = 4 * time.Second
	f, a, token := newStorage(t, kind, fmt.Sprintf("{inline_limit: %d, grace: %s}", storageLimit, grace),
		"DWK_FLEET_POLL_INTERVAL=200ms", "DWK_LEASE_ACQUIRE_TIMEOUT=10s")
	b := f.Start()
	balancer := NewBalancer(t)
	balancer.Add(a)
	balancer.Add(b)
	Eventually(t, "both replicas get requests", func() bool { return balancer.Ready() == 2 })
	front := store{t, token, func() string { return balancer.URL }}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var syncers []*syncer
	folders := []string{"/", "/m/"}
	for i := range 4 {
		s := &syncer{store: front, folder: fmt.Sprintf("/m/c%d/", i), docs: map[string][]document{}}
		for _, name := range []string{"d0", "d1", "d2", "d3", "sub/d0", "sub/d1", "sub/d2", "sub/d3"} {
			s.docs[name] = []document{{gone: true}}
		}
		syncers = append(syncers, s)
		folders = append(folders, s.folder, s.folder+"sub/")
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s.step(random, n)
			}
		})
	}
	wg.Go(func() { front.watch(folders, stop) })
	acked := func() (n int64) {
		for _, s := range syncers {
			n += s.acked.Load()
		}
		return n
	}
	replicas := []*Replica{a, b}
	for i := range Long(12, 2) {
		time.Sleep(500 * time.Millisecond) // of work
		replicas[i%2].Kill()
		time.Sleep(300 * time.Millisecond)
		replicas[i%2] = f.Start()
		balancer.Add(replicas[i%2])
		Eventually(t, "both replicas get requests", func() bool { return balancer.Ready() == 2 })
	}
	Eventually(t, "some changes were answered", func() bool { return acked() >= 20 })
	close(stop)
	wg.Wait()
	large := 0
	for _, s := range syncers {
		for name := range s.docs {
			s.look(name)
			if d := s.docs[name][0]; !d.gone && len(d.body) > storageLimit {
				large++
			}
		}
	}
	t.Logf("%d changes were answered; %d large documents", acked(), large)
	checkListing(t, &front, "/")
	Eventually(t, "no body is left over", func() bool {
		var list []struct{ Key string }
		f.JSON(&list, "bucket", "list", "RS_BODIES", "--limit", "0")
		return len(list) == large
	})
}

// checkListing compares what folders say with what there is.
func checkListing(t *testing.T, s *store, folder string) {
	t.Helper()
	var l struct {
		Items map[string]struct {
			ETag   string
			Length int `json:"Content-Length"`
		}
	}
	s.do(http.MethodGet, folder, "").Decode(t, &l)
	for name, i := range l.Items {
		a := s.do(http.MethodGet, folder+name, "")
		if a.Status != http.StatusOK || a.Header.Get("ETag") != `"`+i.ETag+`"` {
			t.Errorf("%s%s is listed as %+v, and is %d %s", folder, name, i, a.Status, a.Header.Get("ETag"))
		}
		if strings.HasSuffix(name, "/") {
			checkListing(t, s, folder+name)
		} else if len(a.Body) != i.Length {
			t.Errorf("%s%s has %d bytes, and is listed with %d", folder, name, len(a.Body), i.Length)
		}
	}
}

// zeros is a body of n bytes that are not kept.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), z.left)
	clear(p[:n])
	z.left -= n
	return int(n), nil
}

// A large document goes up through one replica and down through another, in
// bounded memory, whether its length is known or not.
func TestLargeDocument(t *testing.T) {
	t.Parallel()
	size := int64(Long(1<<30, 96<<20))
	f, a, token := newStorage(t, File, "{}", steadyLeases)
	b := f.Start()
	const url = "/rs/store/alice/m/large"
	do := func(r *Replica, method string, body io.Reader, length int64, header ...string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, r.Public+url, body)
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		req.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := (&http.Client{Transport: client.Transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for _, length := range []int64{size, -1} {
		resp := do(a, http.MethodPut, &zeros{size}, length)
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatalf("PUT: %s", resp.Status)
		}
		resp = do(b, http.MethodGet, nil, 0)
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n != size || err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("GET: %s, %d bytes, %v", resp.Status, n, err)
		}
		resp = do(b, http.MethodGet, nil, 0, "Range", fmt.Sprintf("bytes=%d-", size-10))
		n, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n != 10 || err != nil || resp.StatusCode != http.StatusPartialContent {
			t.Errorf("GET of the end: %s, %d bytes, %v", resp.Status, n, err)
		}
	}
	checkPeak(t, 200<<10, a, b)
}

// checkPeak fails when a replica has had more memory than that, in KiB.
func checkPeak(t *testing.T, allowed int, replicas ...*Replica) {
	t.Helper()
	for _, r := range replicas {
		kib := peakMemory(r.cmd.Process.Pid)
		t.Logf("%s: %d MiB at most", r.Name, kib>>10)
		if kib > allowed {
			t.Errorf("%s took %d KiB, want %d at most", r.Name, kib, allowed)
		}
	}
}

// An account with very many documents: a change writes no more than in a small
// one, and a large folder is listed in bounded memory.
func TestManyDocuments(t *testing.T) {
	t.Parallel()
	documents, inOne := Long(100_000, 300), Long(10_000, 100)
	f, r, token := newStorage(t, File, "{}", steadyLeases)
	s := &store{t, token, func() string { return r.Public }}
	keep := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	defer keep.CloseIdleConnections()
	put := func(path, body string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.Public+"/rs/store/alice"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := keep.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("PUT %s: %s", path, resp.Status)
		}
		return nil
	}
	// written is what one change writes to the object's log, in bytes.
	written := func(path string) int64 {
		t.Helper()
		if err := put(path, "x"); err != nil {
			t.Fatal(err)
		}
		var shown struct{ Vault string }
		f.JSON(&shown, "app", "remotestorage", "show", "alice")
		var list []struct{ Size int64 }
		f.JSON(&list, "object", "history", "Vault", shown.Vault, "--limit", "1")
		return list[0].Size
	}
	for i := range 60 {
		if err := put(fmt.Sprintf("/m/first/d%d", i), strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	few := written("/m/first/probe")
	var wg sync.WaitGroup
	next := make(chan int)
	failed := make(chan error, 32)
	for range 24 {
		wg.Go(func() {
			for i := range next {
				path := fmt.Sprintf("/m/one/document-%d", i)
				if i >= inOne {
					path = fmt.Sprintf("/m/f%d/document-%d", i/1000, i)
				}
				if err := put(path, strings.Repeat("x", 1000)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	began := time.Now()
fill:
	for i := range documents {
		select {
		case next <- i:
		case err := <-failed:
			t.Error(err)
			break fill
		}
	}
	close(next)
	wg.Wait()
	t.Logf("%d documents in %v", documents, time.Since(began).Round(time.Second))
	many := written("/m/first/probe2")
	t.Logf("a change writes %d bytes among few documents, %d among many", few, many)
	if many > 2*few {
		t.Errorf("a change writes %d bytes among few documents, %d among many", few, many)
	}
	a := s.do(http.MethodGet, "/m/one/", "")
	var l struct{ Items map[string]json.RawMessage }
	a.Decode(t, &l)
	if len(l.Items) != inOne {
		t.Errorf("%d documents are listed, want %d", len(l.Items), inOne)
	}
	checkPeak(t, 200<<10, r)
}
