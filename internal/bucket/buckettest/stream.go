package buckettest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

func testIfAbsentRace(t *testing.T, b durable.Bucket) {
	const racers = 8
	for round := range 5 {
		key := fmt.Sprintf("race/%d/k", round)
		errs := make([]error, racers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				<-start
				_, errs[i] = b.Put(t.Context(), key, strings.NewReader(fmt.Sprint(i)), durable.PutOptions{IfAbsent: true})
			})
		}
		close(start)
		wg.Wait()
		var winners []string
		for i, err := range errs {
			if err == nil {
				winners = append(winners, fmt.Sprint(i))
			} else if !errors.Is(err, durable.ErrPrecondition) {
				t.Errorf("racer %d: %v", i, err)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: winners %q", round, winners)
		}
		if text, _ := get(t, b, key, durable.GetOptions{}); text != winners[0] {
			t.Errorf("round %d: %s won, the body is of %s", round, winners[0], text)
		}
	}
}

func testBrokenBody(t *testing.T, b durable.Bucket) {
	broken := errors.New("broken")
	body := func() io.Reader {
		return io.MultiReader(bytes.NewReader(pattern(300_000)), readerFunc(func([]byte) (int, error) { return 0, broken }))
	}
	put(t, b, "old/k", "old", durable.PutOptions{ContentType: "text/old"})
	before := head(t, b, "old/k")
	for _, key := range []string{"old/k", "new/deep/k"} {
		for _, once := range []bool{false, true} {
			_, err := b.Put(t.Context(), key, body(), durable.PutOptions{IfAbsent: once})
			if !errors.Is(err, broken) && !(once && errors.Is(err, durable.ErrPrecondition)) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	absent(t, b, "new/deep/k")
	text, info := get(t, b, "old/k", durable.GetOptions{})
	if text != "old" {
		t.Errorf("%.80q", text)
	}
	same(t, "after a broken put", info, before)
	put(t, b, "new", "the name is free", durable.PutOptions{})
}

func testCancelled(t *testing.T, b durable.Bucket) {
	put(t, b, "old", "old", durable.PutOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	endless := readerFunc(func(p []byte) (int, error) {
		if read += len(p); read > 200_000 {
			cancel()
		}
		return len(p), nil
	})
	if _, err := b.Put(ctx, "new", endless, durable.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	absent(t, b, "new")
	_, _, getErr := b.Get(ctx, "old", durable.GetOptions{})
	_, headErr := b.Head(ctx, "old")
	_, listErr := b.List(ctx, durable.ListOptions{})
	_, putErr := b.Put(ctx, "old", strings.NewReader("new"), durable.PutOptions{})
	for i, err := range []error{getErr, headErr, listErr, putErr, b.Delete(ctx, "old")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if text, _ := get(t, b, "old", durable.GetOptions{}); text != "old" {
		t.Errorf("%q", text)
	}
	large := string(pattern(4 << 20))
	put(t, b, "large", large, durable.PutOptions{})
	// All of it may be read before anybody has noticed the end of the context.
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		body, _, err := b.Get(ctx, "large", durable.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = io.Copy(io.Discard, body)
		body.Close() //nolint:errcheck // it was read
		if err == nil && tries < 20 {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v", err)
		}
		return
	}
}

// testNeverMixed puts, reads, deletes and lists one key at the same time. What
// is read must be of one put: its body, its size, its facts.
func testNeverMixed(t *testing.T, b durable.Bucket) {
	const key = "mixed/k"
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	bodyOf := func(i int) string { return strings.Repeat(fmt.Sprintf("%04d", i), 1+i%7*3000) }
	put(t, b, key, bodyOf(0), options(0))
	var writers, readers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for n := range rounds {
				if w == 2 && n%4 == 0 {
					if err := b.Delete(t.Context(), key); err != nil {
						t.Errorf("delete: %v", err)
					}
				}
				i := 1 + w*rounds + n
				if _, err := b.Put(t.Context(), key, strings.NewReader(bodyOf(i)), options(i)); err != nil {
					t.Errorf("put: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := checkOne(t.Context(), b, key, bodyOf); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	if err := checkOne(t.Context(), b, key, bodyOf); err != nil {
		t.Error(err)
	}
	head(t, b, key)
}

func options(i int) durable.PutOptions {
	return durable.PutOptions{ContentType: fmt.Sprintf("text/x-%d", i), Metadata: map[string]string{"i": fmt.Sprint(i)}}
}

func checkOne(ctx context.Context, b durable.Bucket, key string, bodyOf func(int) string) error {
	body, info, err := b.Get(ctx, key, durable.GetOptions{})
	if errors.Is(err, durable.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var i int
	if _, err := fmt.Sscan(info.Metadata["i"], &i); err != nil {
		return fmt.Errorf("metadata %q: %w", info.Metadata, err)
	}
	if string(text) != bodyOf(i) || info.Size != int64(len(text)) || info.ContentType != options(i).ContentType {
		return fmt.Errorf("facts of put %d, %s, %d bytes, with a body of %.8q, %d bytes", i, info.ContentType, info.Size, text, len(text))
	}
	page, err := b.List(ctx, durable.ListOptions{Prefix: key})
	if err != nil || len(page.Objects) > 1 {
		return fmt.Errorf("list: %+v, %w", page, err)
	}
	return nil
}

// testOpenBodyStays reads a body that is replaced and deleted meanwhile.
func testOpenBodyStays(t *testing.T, b durable.Bucket) {
	large := string(pattern(8 << 20))
	put(t, b, "k", large, durable.PutOptions{})
	body, _, err := b.Get(t.Context(), "k", durable.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	start := make([]byte, 10)
	if _, err := io.ReadFull(body, start); err != nil {
		t.Fatal(err)
	}
	put(t, b, "k", strings.Repeat("x", len(large)), durable.PutOptions{})
	if err := b.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	// A store may give the rest up, but not go on with another body.
	rest, err := io.ReadAll(body)
	if got := string(start) + string(rest); err == nil && got != large || !strings.HasPrefix(large, got) {
		t.Errorf("%d bytes of another body, %v", len(got), err)
	}
}

// testLarge puts and gets a body that would be noticed in memory.
func testLarge(t *testing.T, b durable.Bucket) {
	const most = 64 << 20
	size := int64(256 << 20)
	if testing.Short() {
		size = 96 << 20
	}
	heap := &heapMeter{}
	heap.measure()
	base := heap.peak
	want := sha256.New()
	source := &meteredReader{r: io.LimitReader(&counting{}, size), hash: want, heap: heap}
	info, err := b.Put(t.Context(), "large", source, durable.PutOptions{})
	if err != nil || info.Size != size {
		t.Fatalf("put: %d bytes, %v", info.Size, err)
	}
	body, info, err := b.Get(t.Context(), "large", durable.GetOptions{})
	if err != nil || info.Size != size {
		t.Fatalf("get: %d bytes, %v", info.Size, err)
	}
	defer body.Close()
	got := sha256.New()
	if n, err := io.Copy(io.Discard, &meteredReader{r: body, hash: got, heap: heap}); err != nil || n != size {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("another body came back")
	}
	if heap.peak > base+most {
		t.Errorf("the heap grew from %d to %d MiB", base>>20, heap.peak>>20)
	}
}

type heapMeter struct{ peak uint64 }

func (m *heapMeter) measure() {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.peak = max(m.peak, s.HeapAlloc)
}

// meteredReader measures the heap every 8 MiB.
type meteredReader struct {
	r    io.Reader
	hash hash.Hash
	heap *heapMeter
	n    int64
}

func (r *meteredReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.hash.Write(p[:n])
	if after := r.n + int64(n); after>>23 != r.n>>23 {
		r.heap.measure()
	}
	r.n += int64(n)
	return n, err
}

// counting is an endless body in which places differ.
type counting struct{ n uint64 }

func (c *counting) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c.n ^ c.n>>8 ^ c.n>>16)
		c.n++
	}
	return len(p), nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
