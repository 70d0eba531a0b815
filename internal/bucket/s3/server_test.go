package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
)

const testAccess, testSecret = "test-access", "test-secret-of-some-length"

// A gateway is a real server, with authentication, in a process of its own. Its
// program is named by DWK_TEST_VERSITYGW; see the target test-s3 of the Makefile.
type gateway struct{ port string }

// startGateway starts it with the bucket "things".
func startGateway(t *testing.T) gateway {
	t.Helper()
	program := os.Getenv("DWK_TEST_VERSITYGW")
	if program == "" {
		t.Skip("DWK_TEST_VERSITYGW does not name a program")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := gateway{strings.TrimPrefix(l.Addr().String(), "127.0.0.1:")}
	l.Close()
	dir := t.TempDir()
	root := filepath.Join(dir, "root") // on a file system with user attributes
	if err := os.MkdirAll(filepath.Join(root, "things"), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--port", "127.0.0.1:"+g.port, "--access", testAccess, "--secret", testSecret, "--region", "eu-test-1",
		"--virtual-domain", "localhost:"+g.port, "posix", root)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); cmd.Wait() }) //nolint:errcheck // it was ended
	for range 600 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+g.port); err == nil {
			c.Close()
			return g
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return g
}

func goodKeys() (string, string, error) { return testAccess, testSecret, nil }

// config is a part of the bucket that no other test has.
func (g gateway) config(style string) Config {
	return Config{URL: "http://localhost:" + g.port + "/things/" + uuid.NewString(), PathStyle: style, Keys: goodKeys, Timeout: time.Minute}
}

func TestGateway(t *testing.T) {
	g := startGateway(t)
	t.Run("path", func(t *testing.T) {
		// It puts a body and its facts in two steps, and tells of more behind a
		// page that is just full.
		buckettest.Run(t, func(t *testing.T) durable.Bucket {
			cfg := g.config("true")
			name := uuid.NewString()
			cfg.URL = "http://localhost:" + g.port + "/" + name // the longest keys leave no room for a prefix
			b := open(t, cfg)
			if err := b.core.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
				t.Fatal(err)
			}
			return bucket.Retry(b)
		}, "NeverMixed", "ListLimit")
	})
	t.Run("virtual", func(t *testing.T) {
		cfg := g.config("false")
		b := open(t, cfg)
		b.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !strings.HasPrefix(addr, "things.localhost:") {
				return nil, fmt.Errorf("asked for %s", addr)
			}
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+g.port)
		}
		if _, err := b.Put(t.Context(), "a/b", strings.NewReader("x"), durable.PutOptions{IfAbsent: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Put(t.Context(), "a/b", strings.NewReader("x"), durable.PutOptions{IfAbsent: true}); !errors.Is(err, durable.ErrPrecondition) {
			t.Error(err)
		}
	})
	t.Run("wrong keys", func(t *testing.T) {
		for _, c := range []struct {
			name           string
			access, secret string
		}{{"secret", testAccess, "wrong-secret"}, {"access", "nobody", testSecret}} {
			cfg := g.config("true")
			cfg.Keys = func() (string, string, error) { return c.access, c.secret, nil }
			_, err := open(t, cfg).Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{})
			if !errors.Is(err, durable.ErrUnavailable) || strings.Contains(err.Error(), c.secret) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		cfg := g.config("true")
		cfg.URL = "http://localhost:" + g.port + "/missing"
		if _, err := open(t, cfg).Head(t.Context(), "k"); err == nil {
			t.Error("found something in a bucket that is not there")
		}
	})
	t.Run("sweep", func(t *testing.T) {
		b := open(t, g.config("true"))
		id, err := b.core.NewMultipartUpload(t.Context(), b.name, b.prefix+"k", minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := b.Sweep(t.Context()); n != 0 || err != nil { // it is young
			t.Errorf("%d, %v", n, err)
		}
		res, err := b.core.ListMultipartUploads(t.Context(), b.name, b.prefix, "", "", "", 10)
		if err != nil || len(res.Uploads) != 1 || res.Uploads[0].UploadID != id {
			t.Errorf("%+v, %v", res.Uploads, err)
		}
	})
	http.DefaultClient.CloseIdleConnections()
}
