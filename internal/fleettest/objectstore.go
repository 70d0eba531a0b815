package fleettest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// An ObjectFault is what happens to a request to the object store.
type ObjectFault int

// The faults.
const (
	NoFault      ObjectFault = iota
	Unavailable              // 503, and nothing is done
	CutUndone                // the connection is cut, and nothing is done
	CutDone                  // the connection is cut after it was done
	CutAnswer                // the answer is cut off in its body
	ObjectDenied             // 403
	NoBucket                 // 404, the bucket does not exist
	Silent                   // no answer, and nothing is done
	HaltDone                 // no answer, after it was done
	OtherRange               // the answer is of fewer bytes than were asked for
)

// An ObjectStore is an S3-compatible server in the process of the test, on a
// loopback address.
type ObjectStore struct {
	URL string

	backend *s3mem.Backend
	handler http.Handler // without faults
	mu      sync.Mutex
	fault   func(*http.Request) ObjectFault
	halted  func()
}

const objectBucket = "things"

// Canary is in every secret that tests plant: where it turns up, a secret leaks.
const Canary = "c4nary5ecret"

// startObjectStore starts a server with one bucket.
func startObjectStore(t testing.TB) *ObjectStore {
	t.Helper()
	o := &ObjectStore{backend: s3mem.New()}
	if err := o.backend.CreateBucket(objectBucket); err != nil {
		t.Fatal(err)
	}
	o.handler = gofakes3.New(o.backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0)).Server()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(w, r, o.handler) }))
	o.URL = web.URL + "/" + objectBucket + "/fleet"
	t.Cleanup(web.Close)
	return o
}

// Env are the settings of a fleet that uses it.
func (o *ObjectStore) Env() []string {
	return []string{
		"DWK_OBJECT_STORE_URL=" + o.URL, "DWK_OBJECT_STORE_REGION=us-east-1", "DWK_OBJECT_STORE_PATH_STYLE=true",
		"DWK_OBJECT_STORE_ACCESS_KEY=" + Canary, "DWK_OBJECT_STORE_SECRET_KEY=" + Canary + "-secret",
	}
}

// SetFault has a fault chosen for each later request; nil ends that.
func (o *ObjectStore) SetFault(f func(*http.Request) ObjectFault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = f
}

// SetHalted has a function called when a request is Silent or a HaltDone.
func (o *ObjectStore) SetHalted(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.halted = f
}

// Always chooses one fault for all requests.
func Always(f ObjectFault) func(*http.Request) ObjectFault {
	return func(*http.Request) ObjectFault { return f }
}

func (o *ObjectStore) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	o.mu.Lock()
	f, halted := o.fault, o.halted
	o.mu.Unlock()
	fault := NoFault
	if f != nil {
		fault = f(r)
	}
	switch fault {
	case NoFault:
		next.ServeHTTP(w, r)
	case Unavailable:
		objectError(w, http.StatusServiceUnavailable, "SlowDown")
	case ObjectDenied:
		objectError(w, http.StatusForbidden, "AccessDenied")
	case NoBucket:
		objectError(w, http.StatusNotFound, "NoSuchBucket")
	case Silent, HaltDone:
		if fault == HaltDone {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		io.Copy(io.Discard, r.Body) //nolint:errcheck // only then it is seen that the client has gone
		if halted != nil {
			halted()
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case OtherRange:
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		n := rec.Body.Len() / 2
		w.Header().Set("Content-Length", strconv.Itoa(n))
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes()[:n]) //nolint:errcheck // to a client
	case CutUndone:
		panic(http.ErrAbortHandler)
	case CutDone:
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case CutAnswer:
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		w.Write(rec.Body.Bytes()[:rec.Body.Len()/2]) //nolint:errcheck // it is cut off
		http.NewResponseController(w).Flush()        //nolint:errcheck // it is cut off
		panic(http.ErrAbortHandler)
	}
}

func objectError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	io.WriteString(w, "<Error><Code>"+code+"</Code><Message>as the test wants it</Message></Error>") //nolint:errcheck // to a client
}

// Logs returns how many entries of logs it has.
func (o *ObjectStore) Logs(t testing.TB) (n int) {
	t.Helper()
	list, err := o.backend.ListBucket(objectBucket, nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Contents {
		if strings.HasSuffix(c.Key, ".ltx") {
			n++
		}
	}
	return n
}

// Uploads returns how many uploads in parts have begun and not ended.
func (o *ObjectStore) Uploads(t testing.TB) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/"+objectBucket+"?uploads", nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	o.handler.ServeHTTP(rec, req)
	if strings.Contains(rec.Body.String(), "NoSuchUpload") { // how it says that there is none
		return 0
	}
	if rec.Code != http.StatusOK {
		t.Fatalf("list of uploads: %d %s", rec.Code, rec.Body)
	}
	return strings.Count(rec.Body.String(), "<UploadId>")
}
