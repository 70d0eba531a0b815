package s3

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func keys() (access, secret string, err error) { return "AKID", "secret", nil }

// fake is an S3 server in memory with one bucket, and its URL.
func fake(t *testing.T) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("things"); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0)).Server())
	t.Cleanup(s.Close)
	return s.URL + "/things"
}

func open(t *testing.T, cfg Config) *Bucket {
	t.Helper()
	if cfg.Keys == nil {
		cfg.Keys = keys
	}
	if cfg.TempDir == "" {
		cfg.TempDir = t.TempDir()
	}
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// A bucket without uploads has nothing to remove.
func TestSweepOfNothing(t *testing.T) {
	b := open(t, Config{URL: fake(t), Region: "us-east-1", PathStyle: "true", Timeout: time.Minute})
	if n, err := b.Sweep(t.Context()); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestSuite runs the suite against gofakes3 in this process.
func TestSuite(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) durable.Bucket {
		return bucket.Retry(open(t, Config{URL: fake(t), Region: "us-east-1", PathStyle: "true", Timeout: time.Minute}))
	}, buckettest.Faults{
		"OverwriteMetadata": "keeps metadata of the body before",
		"ListDelimiters":    "knows no delimiter but a slash",
		"Large":             "holds all bodies in memory, in the process of the test",
	})
}
