package probe

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
)

func newBucket(t *testing.T) (*dir.Bucket, func() []string) {
	t.Helper()
	root := t.TempDir()
	b, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, func() (left []string) {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				left = append(left, path)
			}
			return err
		})
		return left
	}
}

func TestBuckets(t *testing.T) {
	b, left := newBucket(t)
	target, _ := newTarget(t, true)
	target.Buckets = []Bucket{{Store: ObjectStore, Bucket: b, Address: "file:x"}, {Store: BucketStore("A"), Bucket: b, Address: "file:y"}}
	for _, c := range []struct {
		only []string
		n    int
	}{{[]string{Buckets}, 8}, {[]string{"bucket:A"}, 8}, {[]string{ObjectStore, Buckets}, 16}} {
		for _, quick := range []bool{false, true} {
			results, err := Run(t.Context(), target, Options{Only: c.only, Quick: quick, Repeat: 2})
			if err != nil || Summarize(results) != nil || len(results) != c.n {
				t.Fatal(err, Summarize(results), len(results))
			}
			for _, r := range results {
				if left := quick && r.Check == "multipart"; r.OK == left || (r.Skipped != "") != left || !left && (r.Trips < 1 || r.P50 <= 0) || r.Address == "" || r.Warn {
					t.Errorf("%+v", r)
				}
			}
		}
	}
	if files := left(); len(files) > 0 {
		t.Errorf("left %q", files)
	}
	if _, err := Run(t.Context(), target, Options{Only: []string{"bucket:B"}}); err == nil {
		t.Error("probed a bucket that is not there")
	}
}

// lyingBucket does one thing wrong.
type lyingBucket struct {
	durable.Bucket
	wrong string
	n     int
	at    func(n int) error
}

func (b *lyingBucket) call() error {
	b.n++
	if b.at == nil {
		return nil
	}
	return b.at(b.n)
}

func (b *lyingBucket) Put(ctx context.Context, key string, body io.Reader, opts durable.PutOptions) (durable.ObjectInfo, error) {
	if err := b.call(); err != nil {
		return durable.ObjectInfo{}, err
	}
	switch b.wrong {
	case "if-absent":
		opts.IfAbsent = false
	case "head":
		opts.Metadata = nil
	}
	return b.Bucket.Put(ctx, key, body, opts)
}

func (b *lyingBucket) Get(ctx context.Context, key string, opts durable.GetOptions) (io.ReadCloser, durable.ObjectInfo, error) {
	if err := b.call(); err != nil {
		return nil, durable.ObjectInfo{}, err
	}
	if b.wrong == "get" {
		opts.Offset = 0
	}
	return b.Bucket.Get(ctx, key, opts)
}

func (b *lyingBucket) Head(ctx context.Context, key string) (durable.ObjectInfo, error) {
	if err := b.call(); err != nil {
		return durable.ObjectInfo{}, err
	}
	return b.Bucket.Head(ctx, key)
}

func (b *lyingBucket) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	if err := b.call(); err != nil || b.wrong == "list" {
		return durable.Listing{}, err
	}
	return b.Bucket.List(ctx, opts)
}

func (b *lyingBucket) Delete(ctx context.Context, key string) error {
	if err := b.call(); err != nil {
		return err
	}
	return b.Bucket.Delete(ctx, key)
}

func TestWrongBuckets(t *testing.T) {
	for _, check := range []string{"head", "get", "list", "if-absent"} {
		b, left := newBucket(t)
		target, _ := newTarget(t, true)
		target.Buckets = []Bucket{{Store: BucketStore("A"), Bucket: &lyingBucket{Bucket: b, wrong: check}, Address: "x"}}
		results, err := Run(t.Context(), target, Options{Only: []string{Buckets}})
		if err != nil {
			t.Fatal(err)
		}
		r := find(t, results, "bucket:A", check)
		if check == "if-absent" {
			if !r.OK || !r.Warn || !strings.Contains(r.Note, "IfAbsent") {
				t.Errorf("%+v", r)
			}
		} else if !errors.Is(r.Err, errWrong) {
			t.Errorf("%+v", r)
		}
		if files := left(); len(files) > 0 {
			t.Errorf("%s left %q", check, files)
		}
	}
}

// Wherever a probe ends, by its caller or by a store that goes away for a
// moment, it leaves nothing behind.
func TestInterruptedBucket(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		for at := 1; ; at++ {
			b, left := newBucket(t)
			ctx, cancel := context.WithCancel(t.Context())
			l := &lyingBucket{Bucket: b, at: func(n int) error {
				switch {
				case n != at:
					return nil
				case cancels:
					cancel()
					return nil
				}
				return durable.ErrUnavailable
			}}
			target, _ := newTarget(t, true)
			target.Buckets = []Bucket{{Store: BucketStore("A"), Bucket: l, Address: "x"}}
			results, err := Run(ctx, target, Options{Only: []string{Buckets}, Quick: true})
			cancel()
			if files := left(); len(files) > 0 {
				t.Fatalf("ended at %d (cancelled %v) it left %q", at, cancels, files)
			}
			if l.n < at {
				break
			}
			if !cancels {
				e, ok := errors.AsType[*Error](Summarize(results))
				if err != nil || !ok || !e.Unreachable() {
					t.Errorf("at %d: %v, %v", at, err, e)
				}
			} else if !errors.Is(err, context.Canceled) && !slices.ContainsFunc(results, func(r Result) bool { return r.Check == "delete" && r.OK }) {
				t.Errorf("at %d: %v", at, err)
			}
		}
	}
}

// A read-only bucket is only read.
func TestReadOnlyBucket(t *testing.T) {
	b, left := newBucket(t)
	target, _ := newTarget(t, true)
	for wrong, failed := range map[string]string{"": "", "head": "head"} {
		l := &lyingBucket{Bucket: b, wrong: wrong, at: func(int) error {
			if wrong == "head" {
				return durable.ErrUnavailable
			}
			return nil
		}}
		target.Buckets = []Bucket{{Store: BucketStore("A"), Bucket: bucket.ReadOnly(l), Address: "x", ReadOnly: true}}
		results, err := Run(t.Context(), target, Options{Only: []string{Buckets}, Repeat: 2})
		if err != nil || len(results) != len(bucketChecks) {
			t.Fatalf("%d results, %v", len(results), err)
		}
		for _, r := range results {
			if ok := failed == "" && (r.Check == "head" || r.Check == "list"); r.OK != ok || (r.Err != nil) != (r.Check == failed) {
				t.Errorf("%+v", r)
			}
		}
		if err := Summarize(results); (err == nil) != (failed == "") {
			t.Error(err)
		}
	}
	if files := left(); len(files) > 0 {
		t.Errorf("left %q", files)
	}
}
