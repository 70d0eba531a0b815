package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Validate checks every value and how the values go together. The error is an
// [*Error] with all that is wrong.
func (c *Config) Validate() error {
	if problems := c.check().problems; len(problems) > 0 {
		return &Error{problems}
	}
	return nil
}

// Warnings returns what is probably not meant, but can be run with.
func (c *Config) Warnings() []string {
	return slices.Concat(c.warnings, c.check().warnings)
}

// A checker collects what is wrong with one configuration.
type checker struct {
	*Config
	problems []Problem
	warnings []string
}

func (c *Config) check() *checker {
	ck := &checker{Config: c}
	ck.values(schema(), reflect.ValueOf(c).Elem(), "")
	ck.listeners()
	ck.stores()
	ck.relations()
	ck.lists()
	return ck
}

func (c *checker) fail(key, format string, args ...any) {
	c.problems = append(c.problems, Problem{Key: key, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(format string, args ...any) {
	c.warnings = append(c.warnings, fmt.Sprintf(format, args...))
}

// values checks what the schema says of each value by itself.
func (c *checker) values(nodes []*node, v reflect.Value, path string) {
	for _, n := range nodes {
		key := joinKey(path, n.name)
		switch {
		case n.scalar():
			if err := n.checkValue(v.FieldByIndex(n.index)); err != nil {
				c.fail(key, "%v", err)
			}
		case n.list:
			elems := v.FieldByIndex(n.index)
			for i := range elems.Len() {
				c.values(n.children, elems.Index(i), elementKey(key, i))
			}
		default:
			c.values(n.children, v, key)
		}
	}
}

func (n *node) checkValue(v reflect.Value) error {
	if len(n.oneOf) > 0 {
		if text := n.format(v); !slices.Contains(n.oneOf, text) {
			return wanted(text, "one of "+strings.Join(n.oneOf, ", "))
		}
		return nil
	}
	var quantity func(reflect.Value) float64
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		quantity = func(v reflect.Value) float64 { return float64(v.Int()) }
	case reflect.Float64:
		quantity = reflect.Value.Float
	default:
		return nil
	}
	have := quantity(v)
	switch {
	case n.min == "" && have <= 0:
		return fmt.Errorf("%s is not positive", n.format(v))
	case n.min != "" && have < quantity(n.bound(n.min)):
		return fmt.Errorf("%s is less than %s", n.format(v), n.min)
	case n.max != "" && have > quantity(n.bound(n.max)):
		return fmt.Errorf("%s is more than %s", n.format(v), n.max)
	}
	return nil
}

func (n *node) bound(text string) reflect.Value {
	value, err := n.parse(text)
	if err != nil {
		panic("config: bound of " + n.key + ": " + err.Error())
	}
	return reflect.ValueOf(value)
}

func (c *checker) listeners() {
	c.baseURL()
	if err := checkAddress(c.Listen); err != nil {
		c.fail("listen", "%v", err)
	}
	if err := checkAddress(c.Admin.Listen); err != nil {
		c.fail("admin.listen", "%v", err)
	}
	if c.Listen == c.Admin.Listen && !strings.HasSuffix(c.Listen, ":0") {
		c.fail("admin.listen", "%s is the address of the public listener", c.Listen)
	}
	if c.Admin.Token.IsZero() && !loopbackAddress(c.Admin.Listen) {
		c.fail("admin.token", "required, since the admin listener %s is not on a loopback address", c.Admin.Listen)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		c.fail("tls", "cert and key go together")
	}
}

func (c *checker) baseURL() {
	u, err := parseURL(c.BaseURL)
	switch {
	case err != nil:
		c.fail("base_url", "%v", err)
	case u.Scheme != "https" && u.Scheme != "http":
		c.fail("base_url", "not an http or https URL")
	case u.Scheme == "http" && !c.Dev && !loopbackHost(u.Hostname()):
		c.fail("base_url", "plain http needs dev: true, except on localhost")
	}
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return wanted(address, "an address such as 127.0.0.1:8080")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return wanted(port, "a port between 0 and 65535")
	}
	if strings.ContainsAny(host, " /?#@") {
		return wanted(host, "a host")
	}
	return nil
}

// parseURL reads an absolute URL with a host and nothing that belongs
// elsewhere. Its errors do not show the URL: it may hold a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("not a valid URL")
	case u.User != nil:
		return nil, errors.New("a URL with user information: credentials have keys of their own")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("a URL with a query: tokens have a key of their own")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, errors.New("a URL with a fragment")
	case u.Scheme == "" || u.Hostname() == "":
		return nil, errors.New("not an absolute URL with a scheme and a host")
	}
	return u, nil
}

func (c *checker) stores() {
	c.database("libsql", c.LibSQL.URL, c.LibSQL.Token)
	c.objectStore("object_store.url", c.ObjectStore.URL)
	if c.ObjectStore.AccessKey.IsZero() != c.ObjectStore.SecretKey.IsZero() {
		c.fail("object_store", "access_key and secret_key go together")
	}
	shared := remote(c.LibSQL.URL)
	if shared && !remote(c.ObjectStore.URL) {
		c.warn("object_store.url is a directory of this machine while libsql.url is a server: replicas elsewhere do not see it")
	}
	for i, d := range c.Databases {
		key := elementKey("databases", i)
		if c.ownNamespace(d) {
			if d.Namespace == c.LibSQL.Namespace {
				c.fail(key+".namespace", "%s is the namespace of the coordination database", d.Namespace)
			}
			continue
		}
		c.database(key, d.URL, d.Token)
		if d.URL != "" && place(d.URL) == place(c.LibSQLURLOrDefault()) && d.Namespace == c.LibSQL.Namespace {
			c.fail(key+".url", "it is the coordination database")
		}
		if d.Namespace != "" && !remote(d.URL) {
			c.warn("%s.namespace has no effect: the database is a file", key)
		}
		if shared && !remote(d.URL) {
			c.warn("%s (%s) is a file of this machine while libsql.url is a server: replicas elsewhere do not see it", key, d.Name)
		}
	}
	for i, b := range c.Buckets {
		key := elementKey("buckets", i)
		c.objectStore(key+".url", b.URL)
		if shared && b.URL != "" && !remote(b.URL) {
			c.warn("%s (%s) is a directory of this machine while libsql.url is a server: replicas elsewhere do not see it", key, b.Name)
		}
	}
	if c.Otel.Endpoint != "" {
		if u, err := parseURL(c.Otel.Endpoint); err != nil {
			c.fail("otel.endpoint", "%v", err)
		} else if u.Scheme != "http" && u.Scheme != "https" {
			c.fail("otel.endpoint", "not an http or https URL")
		}
	}
}

// place returns a form of a database's URL that is the same for the same place,
// mostly.
func place(databaseURL string) string {
	if path, err := FilePath(databaseURL); err == nil {
		return "file:" + filepath.Clean(path)
	}
	text := strings.TrimRight(databaseURL, "/")
	if rest, ok := strings.CutPrefix(text, "libsql:"); ok {
		return "https:" + rest
	}
	return text
}

// remote reports whether the URL of a store names a server.
func remote(storeURL string) bool { return storeURL != "" && !strings.HasPrefix(storeURL, "file:") }

// database checks the URL and token of the database whose keys are below key.
func (c *checker) database(key, text string, token Secret) {
	if !remote(text) {
		if path, err := FilePath(text); text != "" && (err != nil || strings.HasPrefix(path, ":memory:")) {
			c.fail(key+".url", "%v", errFileURL)
		}
		if !token.IsZero() {
			c.warn("%s.token has no effect: the database is a file", key)
		}
		return
	}
	u, err := parseURL(text)
	switch {
	case err != nil:
		c.fail(key+".url", "%v", err)
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "libsql":
		c.fail(key+".url", "not a file, http, https or libsql URL")
	case u.Scheme == "http" && !token.IsZero() && !loopbackHost(u.Hostname()):
		c.warn("%s.token is sent over plain http to %s", key, u.Hostname())
	}
}

func (c *checker) objectStore(key, text string) {
	if !remote(text) {
		if _, err := FilePath(text); text != "" && err != nil {
			c.fail(key, "%v", err)
		}
		return
	}
	u, err := parseURL(text)
	switch {
	case err != nil:
		c.fail(key, "%v", err)
	case u.Scheme == "s3":
	case u.Scheme != "http" && u.Scheme != "https":
		c.fail(key, "not a file, s3, http or https URL")
	case strings.Trim(u.Path, "/") == "":
		c.fail(key, "names no bucket: append it, as in https://endpoint/bucket")
	case u.Scheme == "http" && !loopbackHost(u.Hostname()):
		c.warn("%s is plain http to %s: what is stored can be read on the way", key, u.Hostname())
	}
}

func (c *checker) relations() {
	if c.Event.Timeout <= c.Lease.AcquireTimeout {
		c.fail("event.timeout", "%s is not longer than lease.acquire_timeout, %s",
			formatDuration(c.Event.Timeout), formatDuration(c.Lease.AcquireTimeout))
	}
	if c.Event.Spool < c.Event.Buffer {
		c.fail("event.spool", "%s is less than event.buffer, %s", c.Event.Spool, c.Event.Buffer)
	}
	if c.Objects.MaxSize < c.Objects.InlineLimit {
		c.fail("objects.max_size", "%s is less than objects.inline_limit, %s", c.Objects.MaxSize, c.Objects.InlineLimit)
	}
	if r := c.Objects.Retention; r.Hourly < r.Full {
		c.fail("objects.retention.hourly", "%s is shorter than objects.retention.full, %s",
			formatDuration(r.Hourly), formatDuration(r.Full))
	}
	// A heartbeat rides in each poll, which may be a fifth late; one may be lost.
	if c.Fleet.HeartbeatTTL < 3*c.Fleet.PollInterval {
		c.fail("fleet.heartbeat_ttl", "%s is less than three times fleet.poll_interval, %s",
			formatDuration(c.Fleet.HeartbeatTTL), formatDuration(c.Fleet.PollInterval))
	}
	if c.Drain.Timeout <= c.Drain.Grace {
		c.fail("drain.timeout", "%s is not longer than drain.grace, %s",
			formatDuration(c.Drain.Timeout), formatDuration(c.Drain.Grace))
	} else if c.Drain.Timeout < c.Drain.Grace+c.Event.Timeout {
		c.warn("drain.timeout, %s, is shorter than drain.grace and event.timeout together: a drain may cut off an event",
			formatDuration(c.Drain.Timeout))
	}
}
