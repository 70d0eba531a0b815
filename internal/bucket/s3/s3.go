// Package s3 is a bucket in an S3-compatible object store. Bodies of unknown
// length are streamed in parts, of which one is in memory; names and values of
// metadata that headers cannot carry travel in percent-encoding.
//
// # What may be repeated
//
// The client's own retries are off: it would repeat a conditional put whose
// answer was lost, and report its own success as a conflict. Here a request is
// repeated only when that changes nothing ([bucket.Retry], and the parts of an
// upload), or when it surely was not executed.
package s3

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/clock"
)

// A Config names a bucket, or a part of one.
type Config struct {
	// URL is s3://bucket/prefix at Amazon, or https://endpoint/bucket/prefix
	// elsewhere; http too. It holds no credentials.
	URL string
	// Keys returns the credentials, each time that they are a minute old. When
	// it is nil, or both are empty, they come from where tools of Amazon look:
	// AWS_ variables, ~/.aws/credentials, the machine's role.
	Keys func() (access, secret string, err error)
	// Region is what requests are signed for; "" is what the store says.
	Region string
	// PathStyle is "true" for the bucket in the path, "false" for it in the
	// host's name; "auto" or "" is what the endpoint is known to want.
	PathStyle string
	// CA is a PEM file of certificates to trust besides the system's.
	CA string
	// Timeout bounds a standstill of a connection, and the wait for an answer; 0
	// means 30 s.
	Timeout time.Duration
	// TempDir is where bodies are kept that must be known whole before they are
	// sent; "" is the system's directory.
	TempDir string
}

const (
	amazon         = "s3.amazonaws.com"
	defaultTimeout = 30 * time.Second
	keysAge        = time.Minute
)

// A Bucket is safe for concurrent use.
type Bucket struct {
	core      *minio.Core
	transport *http.Transport
	name      string // of the bucket
	prefix    string // of all keys: "" or ending in a slash
	addr      string
	tempDir   string
	timeout   time.Duration
	partSize  int
	spare     chan struct{}  // a token for each part that may be in memory besides the first of a body
	pool      sync.Pool      // of buffers for parts
	running   sync.WaitGroup // calls that outlive their callers
	closing   chan struct{}  // closed by Close
	close     sync.Once
}

var _ durable.Bucket = (*Bucket)(nil)

// Open checks the configuration. The store is first spoken to by the first
// call. The bucket must exist.
func Open(cfg Config) (*Bucket, error) {
	endpoint, secure, name, prefix, err := parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	transport, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	lookup := map[string]minio.BucketLookupType{"": minio.BucketLookupAuto, "auto": minio.BucketLookupAuto, "true": minio.BucketLookupPath, "false": minio.BucketLookupDNS}
	style, ok := lookup[cfg.PathStyle]
	if !ok {
		return nil, fmt.Errorf("object store: path style %q is not auto, true or false", cfg.PathStyle)
	}
	core, err := minio.NewCore(endpoint, &minio.Options{
		Creds: keysOf(cfg), Secure: secure, Transport: transport, Region: cfg.Region, BucketLookup: style, MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", endpoint, err)
	}
	b := &Bucket{
		core: core, transport: transport, name: name, prefix: prefix, addr: cfg.URL, tempDir: cfg.TempDir, timeout: cfg.Timeout, partSize: partSize,
		closing: make(chan struct{}), spare: make(chan struct{}, maxSpare),
	}
	for range maxSpare {
		b.spare <- struct{}{}
	}
	return b, nil
}

// String returns the URL.
func (b *Bucket) String() string { return b.addr }

// Close waits for what is under way and closes the connections.
func (b *Bucket) Close() error {
	b.close.Do(func() { close(b.closing) })
	b.running.Wait()
	b.transport.CloseIdleConnections()
	return nil
}

// parse reads a URL. Its errors do not show it: it may hold a secret in a place
// where none belongs.
func parse(text string) (endpoint string, secure bool, name, prefix string, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", false, "", "", errors.New("object store: not a valid URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", false, "", "", errors.New("object store: a URL with user information, a query or a fragment")
	}
	path := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "s3":
		endpoint, name, prefix = amazon, u.Host, path
	case "http", "https":
		endpoint = u.Host
		name, prefix, _ = strings.Cut(path, "/")
	default:
		return "", false, "", "", errors.New("object store: not an s3, https or http URL")
	}
	if endpoint == "" || name == "" {
		return "", false, "", "", errors.New("object store: the URL names no bucket: s3://bucket/prefix or https://endpoint/bucket/prefix")
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		if err := bucket.CheckKey(prefix); err != nil {
			return "", false, "", "", fmt.Errorf("object store: the prefix: %w", err)
		}
		prefix += "/"
	}
	return endpoint, u.Scheme != "http", name, prefix, nil
}

func newTransport(cfg Config) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: dialer(cfg.Timeout),
		// One request a connection: a standstill is that of its own.
		Protocols:             new(http.Protocols),
		MaxIdleConnsPerHost:   64,
		ReadBufferSize:        64 << 10, // bodies are large, and calls of the system dear
		WriteBufferSize:       64 << 10,
		IdleConnTimeout:       min(cfg.Timeout, time.Minute),
		TLSHandshakeTimeout:   cfg.Timeout,
		ResponseHeaderTimeout: cfg.Timeout,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // a body comes as it was put
	}
	t.Protocols.SetHTTP1(true)
	if cfg.CA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(cfg.CA)
	if err != nil {
		return nil, fmt.Errorf("object store CA: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("object store CA: %s holds no certificate in PEM form", cfg.CA)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool}
	return t, nil
}

// keysOf returns the credentials that cfg names.
func keysOf(cfg Config) *credentials.Credentials {
	chain := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}}
	if cfg.Keys != nil {
		chain = append([]credentials.Provider{&given{keys: cfg.Keys}}, chain...)
	}
	return credentials.New(&credentials.Chain{Providers: chain})
}

// given are credentials that somebody else keeps.
type given struct {
	keys func() (access, secret string, err error)
	read time.Time
}

var errNoKeys = errors.New("no keys are configured")

// Retrieve implements credentials.Provider.
func (g *given) Retrieve() (credentials.Value, error) {
	access, secret, err := g.keys()
	if err == nil && (access == "" || secret == "") {
		err = errNoKeys
	}
	if err != nil {
		return credentials.Value{}, err
	}
	g.read = clock.Now()
	return credentials.Value{AccessKeyID: access, SecretAccessKey: secret, SignerType: credentials.SignatureV4}, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (g *given) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return g.Retrieve()
}

// IsExpired implements credentials.Provider.
func (g *given) IsExpired() bool { return clock.Since(g.read) > keysAge }
