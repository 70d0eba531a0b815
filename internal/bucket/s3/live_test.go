package s3

import (
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
	"github.com/davidwkeith/dwk/internal/bucket/s3test"
)

// TestLive runs the suite in a part of a bucket at a live store, which is empty
// again afterwards.
func TestLive(t *testing.T) {
	s3test.Live(t) // or it is skipped as a whole
	buckettest.Run(t, func(t *testing.T) durable.Bucket {
		s := s3test.Live(t)
		b := bucket.Retry(open(t, Config{
			URL: s.URL, Region: s.Region, PathStyle: s.PathStyle, Timeout: time.Minute,
			Keys: func() (string, string, error) { return s.Access, s.Secret, nil },
		}))
		t.Cleanup(func() { buckettest.Empty(t, b) })
		return b
	}, buckettest.Faults{"LongestKey": "has its keys below a prefix, which counts"})
}
