package fleettest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket/s3test"
)

// bulk is for bodies that take their time.
var bulk = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}, Timeout: 20 * time.Minute}

// A generated body is made while it is read, so that nobody has to hold it. Each
// of its blocks begins with its number.
type generated struct {
	at, end int64
	block   [64 << 10]byte
	sum     hash.Hash
}

// generate returns the bytes from one place to another of a body.
func generate(from, to int64) *generated {
	g := &generated{at: from, end: to, sum: sha256.New()}
	for i := range g.block {
		g.block[i] = byte(i * 7 >> 3)
	}
	return g
}

func (g *generated) Read(p []byte) (int, error) {
	if g.at == g.end {
		return 0, io.EOF
	}
	size := int64(len(g.block))
	copy(g.block[:], fmt.Sprintf("%08x", g.at/size))
	n := copy(p[:min(int64(len(p)), g.end-g.at)], g.block[g.at%size:])
	g.sum.Write(p[:n])
	g.at += int64(n)
	return n, nil
}

// hash is that of what was read.
func (g *generated) hash() string { return hex.EncodeToString(g.sum.Sum(nil)) }

// upload puts a body into the lab's bucket; size is -1 for a body of unknown
// length.
func (r *Replica) upload(key string, body io.Reader, size int64) (status int, err error) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, r.Public+"/lab/bucket/"+key, body)
	if err != nil {
		return 0, err
	}
	req.ContentLength = size
	res, err := bulk.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// download gets a body, or a part of it, and returns its hash and length.
func (r *Replica) download(key, part string) (hash string, n int64) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.Public+"/lab/bucket/"+key, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if part != "" {
		req.Header.Set("Range", part)
	}
	res, err := bulk.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	sum := sha256.New()
	if n, err = io.Copy(sum, res.Body); err != nil || res.StatusCode/100 != 2 {
		r.t.Errorf("get %s: %d, %d bytes, %v", key, res.StatusCode, n, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), n
}

// Bodies far larger than what a replica may take of memory go through the lab's
// bucket into an S3 server and back: of unknown and of known length, whole and in
// ranges.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	size := int64(Long(2<<10, 300)) << 20
	server := s3test.Start(t, objectBucket)
	_, env := gatewayStore(server)
	f := New(t, Wire, env...)
	r := f.Start()
	peak := func(when string) {
		t.Helper()
		kib := peakMemory(r.cmd.Process.Pid)
		t.Logf("%s: %d MiB at most", when, kib>>10)
		if allowed := 200 << 10; kib > allowed || kib == 0 {
			t.Errorf("%s the replica has taken %d KiB of memory", when, kib)
		}
	}
	for _, c := range []struct {
		key          string
		size, length int64
	}{{"unknown", size, -1}, {"known", size / 4, size / 4}} {
		body := generate(0, c.size)
		if status, err := r.upload("large/"+c.key, body, c.length); err != nil || status/100 != 2 {
			t.Fatalf("put a body of %s length: %d, %v", c.key, status, err)
		}
		peak("after a body of " + c.key + " length has come")
		if hash, n := r.download("large/"+c.key, ""); n != c.size || hash != body.hash() {
			t.Errorf("%d bytes came back of %d, or others", n, c.size)
		}
		peak("after it has gone")
	}
	for _, part := range [][2]int64{{0, 1}, {size/2 - 3, 9 << 20}, {size - 5, 5}} {
		want := generate(part[0], part[0]+part[1])
		io.Copy(io.Discard, want) //nolint:errcheck // it does not fail
		if hash, n := r.download("large/unknown", fmt.Sprintf("bytes=%d-%d", part[0], part[0]+part[1]-1)); n != part[1] || hash != want.hash() {
			t.Errorf("%d bytes from %d: got %d, or others", part[1], part[0], n)
		}
	}
	// An upload that its sender cuts off leaves nothing.
	body, w := io.Pipe()
	go func() {
		_, err := io.CopyN(w, generate(0, size), 40<<20)
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		w.CloseWithError(err) //nolint:errcheck // it never fails
	}()
	if status, err := r.upload("large/cut", body, -1); err == nil {
		t.Errorf("a body that was cut off: %d", status)
	}
	Eventually(t, "the parts of an upload that was cut off are gone", func() bool { return server.Uploads(t, objectBucket) == 0 })
	if a := r.Get("bucket/large/cut"); a.Status != http.StatusNotFound {
		t.Errorf("a body that was cut off: %v", a)
	}
	peak("after all")
}
