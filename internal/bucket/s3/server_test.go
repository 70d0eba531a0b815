package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/buckettest"
	"github.com/davidwkeith/dwk/internal/bucket/s3test"
)

// gateway is a real server with the bucket "things".
func gateway(t *testing.T) *s3test.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs in a process of its own, which the race detector does not see")
	}
	return s3test.Start(t, "things")
}

// config is a part of a bucket of g that no other test has.
func config(g *s3test.Server, style string) Config {
	return Config{
		URL: g.URL("things") + "/" + uuid.NewString(), PathStyle: style, Timeout: time.Minute,
		Keys: func() (string, string, error) { return g.Access, g.Secret, nil },
	}
}

func TestGateway(t *testing.T) {
	g := gateway(t)
	t.Run("path", func(t *testing.T) {
		buckettest.Run(t, func(t *testing.T) durable.Bucket {
			cfg := config(g, "true")
			name := uuid.NewString()
			cfg.URL = g.URL(name) // the longest keys leave no room for a prefix
			b := open(t, cfg)
			if err := b.core.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
				t.Fatal(err)
			}
			return bucket.Retry(b)
		}, buckettest.Faults{"NeverMixed": "finds a body and its facts in two steps"})
	})
	t.Run("virtual", func(t *testing.T) {
		cfg := config(g, "false")
		b := open(t, cfg)
		b.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !strings.HasPrefix(addr, "things.localhost:") {
				return nil, fmt.Errorf("asked for %s", addr)
			}
			return new(net.Dialer).DialContext(ctx, network, strings.Replace(g.Endpoint, "localhost", "127.0.0.1", 1))
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
		}{{"secret", g.Access, "wrong-secret"}, {"access", "nobody", g.Secret}} {
			cfg := config(g, "true")
			cfg.Keys = func() (string, string, error) { return c.access, c.secret, nil }
			_, err := open(t, cfg).Put(t.Context(), "k", strings.NewReader("x"), durable.PutOptions{})
			if !errors.Is(err, durable.ErrUnavailable) || strings.Contains(err.Error(), c.secret) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		cfg := config(g, "true")
		cfg.URL = g.URL("missing")
		if _, err := open(t, cfg).Head(t.Context(), "k"); err == nil {
			t.Error("found something in a bucket that is not there")
		}
	})
	t.Run("sweep", func(t *testing.T) {
		b := open(t, config(g, "true"))
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
}
