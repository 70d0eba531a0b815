package s3

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/s3test"
)

// BenchmarkBesideClient puts and gets bodies through a bucket as replicas have it,
// and by the client alone, in turn, at a server that is a process of its own. "x"
// is the client's time over the bucket's, by their medians: above 1 the bucket is
// faster. "cpu-x" is the same of this process's own processor time, which a
// machine that others use disturbs less.
//
// The client needs bodies of known length: with others it takes hundreds of MB
// each. The bucket is told no length.
func BenchmarkBesideClient(b *testing.B) {
	server := s3test.Start(b, "things")
	ours, err := Open(Config{
		URL: server.URL("things"), Region: s3test.Region, PathStyle: "true", TempDir: b.TempDir(), Timeout: time.Minute,
		Keys: func() (string, string, error) { return server.Access, server.Secret, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer ours.Close()
	client, err := minio.New(server.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(server.Access, server.Secret, ""), Region: s3test.Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		b.Fatal(err)
	}
	store, ctx := bucket.Observed(bucket.Retry(ours), func(time.Duration, error) {}), b.Context()
	for _, size := range []int{1 << 10, 1 << 20, 64 << 20} {
		body := make([]byte, size)
		rand.Read(body)
		key := uuid.NewString()
		name := fmt.Sprintf("%dKiB", size>>10)
		b.Run("put/"+name, func(b *testing.B) {
			inTurn(b, func() error {
				_, err := store.Put(ctx, key, &onlyReader{bytes.NewReader(body)}, durable.PutOptions{ContentType: "text/plain"})
				return err
			}, func() error {
				_, err := client.PutObject(ctx, "things", key, bytes.NewReader(body), int64(size), minio.PutObjectOptions{ContentType: "text/plain"})
				return err
			})
		})
		if _, err := store.Put(ctx, key, bytes.NewReader(body), durable.PutOptions{}); err != nil {
			b.Fatal(err)
		}
		b.Run("get/"+name, func(b *testing.B) {
			inTurn(b, func() error {
				r, _, err := store.Get(ctx, key, durable.GetOptions{})
				return drain(r, int64(size), err)
			}, func() error {
				r, err := client.GetObject(ctx, "things", key, minio.GetObjectOptions{})
				return drain(r, int64(size), err)
			})
		})
	}
}

// onlyReader hides that a body could be read at any place.
type onlyReader struct{ io.Reader }

func drain(r io.ReadCloser, size int64, err error) error {
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(io.Discard, r)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// inTurn measures two ways to do the same, one after the other, so that both
// have the same machine.
func inTurn(b *testing.B, ways ...func() error) {
	took, used := make([][]time.Duration, len(ways)), make([]time.Duration, len(ways))
	for round := 0; b.Loop(); round++ {
		for i := range ways {
			i := (i + round) % len(ways)
			began, cpu := time.Now(), processor(b)
			if err := ways[i](); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
			used[i] += processor(b) - cpu
		}
	}
	median := func(list []time.Duration) time.Duration {
		slices.Sort(list)
		return list[len(list)/2]
	}
	ours, bare := median(took[0]), median(took[1])
	b.ReportMetric(float64(bare)/float64(ours), "x")
	b.ReportMetric(float64(used[1])/float64(used[0]), "cpu-x")
	b.ReportMetric(float64(ours.Microseconds()), "µs/bucket")
	b.ReportMetric(float64(bare.Microseconds()), "µs/client")
	b.ReportMetric(0, "ns/op")
}

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
