package bucket_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
)

// The decorators change nothing of what a bucket does.
func TestDecorated(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole suite")
	}
	buckettest.Run(t, func(t *testing.T) durable.Bucket {
		return bucket.Observed(bucket.Retry(open(t)), func(took time.Duration, _ error) {
			if took < 0 {
				t.Error(took)
			}
		})
	}, nil)
}

func TestObserved(t *testing.T) {
	var seen []error
	b := bucket.Observed(open(t), func(_ time.Duration, err error) { seen = append(seen, err) })
	ctx := t.Context()
	b.Put(ctx, "k", strings.NewReader("x"), durable.PutOptions{})
	b.Head(ctx, "k")
	if body, _, err := b.Get(ctx, "k", durable.GetOptions{}); err == nil {
		body.Close()
	}
	b.List(ctx, durable.ListOptions{})
	b.Delete(ctx, "k")
	b.Head(ctx, "k")
	if len(seen) != 6 || errors.Join(seen[:5]...) != nil || !errors.Is(seen[5], durable.ErrNotFound) {
		t.Errorf("%v", seen)
	}
}

// A body that breaks off is seen, once.
func TestObservedBody(t *testing.T) {
	var seen []error
	broken := errors.New("broken")
	b := bucket.Observed(breaking{open(t), broken}, func(_ time.Duration, err error) { seen = append(seen, err) })
	body, _, err := b.Get(t.Context(), "k", durable.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := body.Read(make([]byte, 9)); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if len(seen) != 2 || seen[0] != nil || !errors.Is(seen[1], broken) {
		t.Errorf("%v", seen)
	}
}

type breaking struct {
	durable.Bucket
	err error
}

func (b breaking) Get(context.Context, string, durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	return io.NopCloser(iotest.ErrReader(b.err)), durable.ObjectInfo{}, nil
}

func TestReadOnly(t *testing.T) {
	inner := open(t)
	if _, err := inner.Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	b := bucket.ReadOnly(inner)
	for key, want := range map[string]error{"k": durable.ErrReadOnly, "n": durable.ErrReadOnly, "../k": durable.ErrInvalid} {
		if _, err := b.Put(t.Context(), key, strings.NewReader("y"), durable.PutOptions{}); !errors.Is(err, want) {
			t.Errorf("put %s: %v", key, err)
		}
		if err := b.Delete(t.Context(), key); !errors.Is(err, want) {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	body, info, err := b.Get(t.Context(), "k", durable.GetOptions{})
	if err != nil || info.Size != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	body.Close()
	if page, err := b.List(t.Context(), durable.ListOptions{}); err != nil || len(page.Objects) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
}
