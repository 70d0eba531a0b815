package dir

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(childJob); job != "" {
		os.Exit(runChild(job))
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, name string) *Bucket {
	t.Helper()
	b, err := Open(name)
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

func TestSuite(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) durable.Bucket { return open(t, t.TempDir()) }, nil)
}
