package config

import (
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Files and folders of data_dir.
const (
	centralFolder    = "central"
	coordinationName = "coordination" // no database without a URL may have it
	storeFolder      = "store"
	mirrorsFolder    = "mirrors"
	// bucketPrefix keeps bucket bindings apart from the host's own keys in the
	// object store.
	bucketPrefix = "buckets"
)

// CentralDir returns the directory of the embedded stores.
func (c *Config) CentralDir() string { return filepath.Join(c.DataDir, centralFolder) }

// ReplicaDirOrDefault returns the directory of the mirrors.
func (c *Config) ReplicaDirOrDefault() string {
	if c.ReplicaDir != "" {
		return c.ReplicaDir
	}
	return filepath.Join(c.DataDir, mirrorsFolder)
}

// LibSQLURLOrDefault returns the URL of the coordination database.
func (c *Config) LibSQLURLOrDefault() string {
	if c.LibSQL.URL != "" {
		return c.LibSQL.URL
	}
	return fileURL(filepath.Join(c.CentralDir(), coordinationName+".sqlite"))
}

// ObjectStoreURLOrDefault returns the URL of the object store.
func (c *Config) ObjectStoreURLOrDefault() string {
	if c.ObjectStore.URL != "" {
		return c.ObjectStore.URL
	}
	return fileURL(filepath.Join(c.CentralDir(), storeFolder))
}

// DatabaseOrDefault returns a SQL binding with the URL and token that empty ones
// stand for; ok is false when there is none of that name.
func (c *Config) DatabaseOrDefault(name string) (d Database, ok bool) {
	i := slices.IndexFunc(c.Databases, func(d Database) bool { return d.Name == name })
	if i < 0 {
		return Database{}, false
	}
	d = c.Databases[i]
	switch {
	case d.URL != "":
	case c.ownNamespace(d):
		d.URL = c.LibSQL.URL
		if d.Token.IsZero() {
			d.Token = c.LibSQL.Token
		}
	default:
		d.URL = fileURL(filepath.Join(c.CentralDir(), name+".sqlite"))
	}
	return d, true
}

// ownNamespace reports whether a SQL binding is a namespace of the coordination
// database's server.
func (c *Config) ownNamespace(d Database) bool {
	return d.URL == "" && d.Namespace != "" && remote(c.LibSQL.URL)
}

// BucketURL returns the URL of a bucket binding, by default the prefix
// buckets/<name> of the object store; ok is false when there is none of that
// name.
func (c *Config) BucketURL(name string) (url string, ok bool) {
	i := slices.IndexFunc(c.Buckets, func(b Bucket) bool { return b.Name == name })
	switch {
	case i < 0:
		return "", false
	case c.Buckets[i].URL != "":
		return c.Buckets[i].URL, true
	default:
		return strings.TrimRight(c.ObjectStoreURLOrDefault(), "/") + "/" + bucketPrefix + "/" + name, true
	}
}

// BucketReadOnly reports whether a bucket binding is one of that name that takes
// no changes.
func (c *Config) BucketReadOnly(name string) bool {
	return slices.ContainsFunc(c.Buckets, func(b Bucket) bool { return b.Name == name && b.ReadOnly })
}

// NamedSecret returns a secret for applications: one of the list, else a file of
// secrets_dir. ok is false when there is neither.
func (c *Config) NamedSecret(name string) (s Secret, ok bool, err error) {
	i := slices.IndexFunc(c.Secrets, func(s NamedSecret) bool { return s.Name == name })
	switch {
	case i >= 0:
		return c.Secrets[i].From, true, nil
	case c.SecretsDir == "" || !namePattern.MatchString(name):
		return Secret{}, false, nil
	}
	s, err = secretFile(filepath.Join(c.SecretsDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return Secret{}, false, nil
	}
	return s, err == nil, err
}

// Loopback reports whether the public listener can be reached from this
// machine only.
func (c *Config) Loopback() bool { return loopbackAddress(c.Listen) }

// loopbackAddress reports whether the host of host:port is a loopback one.
func loopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// fileURL returns the file: URL of a path, which may be relative. Escaped is
// only what would end the path or begin an escape.
func fileURL(path string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(filepath.ToSlash(path))
}

var errFileURL = errors.New("not a file URL such as file:PATH or file:///PATH")

// FilePath returns the path of a file: URL, relative as in file:data/x or
// absolute as in file:/data/x or file:///data/x.
func FilePath(rawURL string) (string, error) {
	rest, ok := strings.CutPrefix(rawURL, "file:")
	if !ok || strings.ContainsAny(rest, "?#") {
		return "", errFileURL
	}
	if authority, ok := strings.CutPrefix(rest, "//"); ok {
		rest = strings.TrimPrefix(authority, "localhost")
		if !strings.HasPrefix(rest, "/") {
			return "", errFileURL
		}
	}
	path, err := url.PathUnescape(rest)
	if err != nil || path == "" || strings.ContainsRune(path, 0) {
		return "", errFileURL
	}
	return filepath.FromSlash(path), nil
}

// names returns the names of a list's elements, nil for a list without names.
func (c *Config) names(list string) []string {
	switch list {
	case "queues":
		return namesOf(c.Queues, func(q Queue) string { return q.Name })
	case "databases":
		return namesOf(c.Databases, func(d Database) string { return d.Name })
	case "buckets":
		return namesOf(c.Buckets, func(b Bucket) string { return b.Name })
	case "caches":
		return namesOf(c.Caches, func(c Cache) string { return c.Name })
	case "secrets":
		return namesOf(c.Secrets, func(s NamedSecret) string { return s.Name })
	case "crons":
		return namesOf(c.Crons, func(c Cron) string { return c.Name })
	default:
		return nil
	}
}

func namesOf[T any](elems []T, name func(T) string) []string {
	names := make([]string, len(elems))
	for i, e := range elems {
		names[i] = name(e)
	}
	return names
}
