package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
)

// gauge counts the parts that are being sent, and holds each until so many of
// them were at the same time.
type gauge struct {
	want      int
	mu        sync.Mutex
	now, most int
	reached   chan struct{}
}

func newGauge(want int) *gauge { return &gauge{want: want, reached: make(chan struct{})} }

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	if g.now > g.most {
		if g.most = g.now; g.most == g.want {
			close(g.reached)
		}
	}
}

// Parts are sent at the same time, but no more of them than a body may have in
// memory; when there is no more memory to be had, one after the other.
func TestPartsAtATime(t *testing.T) {
	for name, c := range map[string]struct{ spare, most int }{"enough": {maxSpare, maxAhead}, "one more": {1, 2}, "none": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			g, later := newGauge(c.most), make(chan struct{})
			view, b := faultyBucket(t, func(_ http.ResponseWriter, r *http.Request) (bool, bool) {
				switch number := r.URL.Query().Get("partNumber"); {
				case number == "":
					return false, false
				case number == "1" && c.most > 1:
					defer func() { <-later }() // it is the last one, whatever its number
				case number == fmt.Sprint(c.most+1):
					close(later)
				}
				g.add(1)
				defer g.add(-1)
				<-g.reached
				return false, false
			})
			b.partSize = 64 << 10 // this server takes parts of any size
			for range maxSpare - c.spare {
				<-b.spare
			}
			text := bytes.Repeat([]byte("0123456789abcdef"), 26<<10) // 7 parts
			info, err := view.Put(t.Context(), "k", io.MultiReader(bytes.NewReader(text)), durable.PutOptions{})
			if err != nil || info.Size != int64(len(text)) {
				t.Fatalf("%+v, %v", info, err)
			}
			body, _, err := view.Get(t.Context(), "k", durable.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, text) {
				t.Errorf("%d bytes came back, or others, %v", len(got), err)
			}
			if g.most > c.most {
				t.Errorf("%d parts at a time", g.most)
			}
			if n := len(b.spare); n != c.spare {
				t.Errorf("%d buffers may be made, of %d", n, c.spare)
			}
		})
	}
}

// When a part fails the rest of the body is not read, and nothing is left.
func TestFailedPart(t *testing.T) {
	view, b := faultyBucket(t, func(w http.ResponseWriter, r *http.Request) (bool, bool) {
		if r.URL.Query().Get("partNumber") == "2" {
			slowDown(w)
			return true, false
		}
		return false, false
	})
	b.partSize = 64 << 10 // this server takes parts of any size
	read := 0
	body := readerFunc(func(p []byte) (int, error) { read += len(p); return len(p), nil }) // it never ends
	if _, err := view.Put(t.Context(), "k", body, durable.PutOptions{}); !errors.Is(err, durable.ErrUnavailable) {
		t.Error(err)
	}
	if read == 0 {
		t.Error("nothing was read")
	}
	if res, err := b.core.ListMultipartUploads(t.Context(), b.name, "", "", "", "", 10); err == nil && len(res.Uploads) > 0 {
		t.Errorf("left %+v", res.Uploads)
	}
	if n := len(b.spare); n != maxSpare {
		t.Errorf("%d buffers may be made, of %d", n, maxSpare)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The list of parts is in their order, whichever was sent first: some stores
// refuse any other.
func TestPartsInOrder(t *testing.T) {
	b := &Bucket{}
	s := newSender(t.Context(), b, "k", "id")
	s.buffers = 1
	for _, n := range []int{3, 1, 4, 2} {
		s.list = append(s.list, minio.CompletePart{PartNumber: n})
	}
	if err := s.wait(nil); err != nil {
		t.Fatal(err)
	}
	for i, p := range s.list {
		if p.PartNumber != i+1 {
			t.Fatalf("parts in the order %v", s.list)
		}
	}
}
