// Package s3test runs a real S3 server for tests: versitygw, with
// authentication, as a process of its own on a directory.
package s3test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Region is what the server wants requests signed for.
const Region = "eu-test-1"

// A Server is a process, which ends with the test.
type Server struct {
	// Endpoint is its host:port. The host is "localhost", whose subdomains are
	// names of buckets.
	Endpoint string
	// Access and Secret are its keys.
	Access, Secret string
	// Root has a folder for each bucket.
	Root string

	dead chan struct{} // closed when the process has ended
}

// URL is that of a bucket.
func (s *Server) URL(bucket string) string { return "http://" + s.Endpoint + "/" + bucket }

// Uploads is how many uploads in parts a bucket has that were neither completed
// nor ended.
func (s *Server) Uploads(t testing.TB, bucket string) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	c, err := minio.NewCore(s.Endpoint, &minio.Options{Creds: credentials.NewStaticV4(s.Access, s.Secret, ""), Region: Region, BucketLookup: minio.BucketLookupPath, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.ListMultipartUploads(t.Context(), bucket, "", "", "", "", 1000)
	if err != nil && minio.ToErrorResponse(err).Code != "NoSuchUpload" {
		t.Fatal(err)
	}
	return len(res.Uploads)
}

// patience bounds the start of a server on a machine that has much to do.
const patience = time.Minute

// Start starts a server with buckets.
func Start(t testing.TB, buckets ...string) *Server {
	t.Helper()
	program, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range buckets {
		if err := os.MkdirAll(filepath.Join(dir, "root", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody else may take the port before the server does: then it ends, and
	// there are others.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		s, err := start(t, program, dir)
		if err != nil {
			t.Fatal(err)
		}
		if s.wait(deadline) {
			return s
		}
	}
	t.Fatalf("no S3 server listens within %v", patience)
	return nil
}

// start starts a process on a port that was free a moment ago.
func start(t testing.TB, program, dir string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	s := &Server{
		Endpoint: strings.Replace(addr, "127.0.0.1", "localhost", 1), Access: "test-access", Secret: "test-" + uuid.NewString(),
		Root: filepath.Join(dir, "root"), dead: make(chan struct{}),
	}
	cmd := exec.Command(program, "-listen", addr, "-dir", dir, "-region", Region, "-virtual-domain", s.Endpoint, "-health", s.health())
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.Access, "ROOT_SECRET_KEY="+s.Secret)
	alive, err := cmd.StdinPipe() // it ends with this process too, however that ends
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		cmd.Wait() //nolint:errcheck // it was ended
		close(s.dead)
	}()
	t.Cleanup(func() {
		alive.Close()                                                         //nolint:errcheck // that ends it
		late := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended
		<-s.dead
		late.Stop()
		if t.Failed() {
			t.Logf("the S3 server: %s", &log)
		}
	})
	return s, nil
}

// health is a path that only this server has.
func (s *Server) health() string { return "/up-" + s.Secret }

// wait waits until the server is up; false when it has ended.
func (s *Server) wait(deadline time.Time) bool {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for time.Now().Before(deadline) {
		res, err := c.Get("http://" + s.Endpoint + s.health())
		if err == nil {
			res.Body.Close() //nolint:errcheck // nothing is read
			if res.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-s.dead:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// program returns the path of the server's program: that in DWK_TEST_S3SERVER,
// or one that is built from the module in the folder tools, once as long as
// nothing of it changes.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("DWK_TEST_S3SERVER"); path != "" {
		return path, nil
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("the S3 server for tests: find the module: %w", err)
	}
	top := filepath.Dir(strings.TrimSpace(string(out)))
	bin := filepath.Join(top, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(bin, "s3server")
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil { // packages are tested at the same time
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./s3server")
	cmd.Dir = filepath.Join(top, "tools")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the S3 server for tests: %w\n%s", err, out)
	}
	return path, nil
})
