package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// envPrefix begins the names of all variables but the two older ones without it.
const envPrefix = "DWK_"

// envName returns the variable that sets the scalar of a dotted key.
func envName(key string) string {
	return envPrefix + envForm(strings.ReplaceAll(key, ".", "_"))
}

// envForm returns a name as it is written in variables.
func envForm(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// olderNames are variables of an older host, by dotted key. PORT, HOST and
// DWK_R2_ENDPOINT only change a part of a value and are treated apart.
var olderNames = map[string]string{
	"libsql.token":            "DWK_LIBSQL_AUTH_TOKEN",
	"object_store.access_key": "DWK_S3_ACCESS_KEY_ID",
	"object_store.secret_key": "DWK_S3_SECRET_ACCESS_KEY",
	"object_store.region":     "DWK_S3_REGION",
}

const olderEndpoint = "DWK_R2_ENDPOINT"

// otherVariables belong to the program, but are no settings.
var otherVariables = []string{"DWK_CONFIG", "DWK_FAILPOINTS", "DWK_FAILPOINT_LOG", "DWK_CLOCK_SHIFT"}

// testPrefix begins variables that only tests read.
const testPrefix = "DWK_TEST_"

// elementVariables are the variables that set one field of a named thing:
// prefix, name, suffix.
var elementVariables = []struct{ list, field, prefix, suffix string }{
	{"databases", "url", "DWK_DATABASE_", "_URL"},
	{"databases", "token", "DWK_DATABASE_", "_TOKEN"},
	{"buckets", "url", "DWK_BUCKET_", "_URL"},
	{"secrets", "from", "DWK_SECRET_", ""},
}

// environment makes a map of "NAME=value" entries. A variable that is set to
// nothing counts as not set, as in a compose file that passes an absent one on.
func environment(entries []string) map[string]string {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok && value != "" {
			env[name] = value
		}
	}
	return env
}

// envScalar returns the value of the variable that sets the key and its name.
// The current name wins over the older one.
func (l *loader) envScalar(key string) (value, name string, ok bool) {
	for _, name := range []string{envName(key), olderNames[key]} {
		if value, ok := l.env[name]; ok {
			return value, name, true
		}
	}
	return "", "", false
}

// olderListen puts HOST and PORT into the address that the file or the default
// gives.
func (l *loader) olderListen(address string) (value, name string, ok bool) {
	hostVar, hasHost := l.env["HOST"]
	portVar, hasPort := l.env["PORT"]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = "127.0.0.1", "8080"
	}
	switch {
	case hasHost && hasPort:
		return net.JoinHostPort(hostVar, portVar), "HOST and PORT", true
	case hasHost:
		return net.JoinHostPort(hostVar, port), "HOST", true
	case hasPort:
		return net.JoinHostPort(host, portVar), "PORT", true
	}
	return "", "", false
}

// olderObjectStore puts the endpoint of the older variable before the bucket of
// an s3:// URL; alone it is the whole URL.
func (l *loader) olderObjectStore(current string) (value, name string, ok bool) {
	endpoint, ok := l.env[olderEndpoint]
	if !ok {
		return "", "", false
	}
	if bucket, ok := strings.CutPrefix(current, "s3://"); ok {
		endpoint = strings.TrimSuffix(endpoint, "/") + "/" + bucket
	}
	return endpoint, olderEndpoint, true
}

// splitElementVariable finds the list, field and name that a variable sets.
func splitElementVariable(variable string) (list, field, name string, ok bool) {
	for _, v := range elementVariables {
		rest, hasPrefix := strings.CutPrefix(variable, v.prefix)
		name, hasSuffix := strings.CutSuffix(rest, v.suffix)
		if hasPrefix && hasSuffix && name != "" {
			return v.list, v.field, name, true
		}
	}
	return "", "", "", false
}

// warnVariables adds a warning for each variable that is no setting but
// resembles one. Others are left alone: an orchestrator may set variables
// with this prefix for its own reasons.
func (l *loader) warnVariables() {
	known := l.knownVariables()
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, testPrefix) || slices.Contains(known, name) {
			continue
		}
		if _, _, _, ok := splitElementVariable(name); ok {
			continue
		}
		if near, d := nearest(name, known); len(name) <= maxNear && d <= 1+len(near)/8 {
			l.warn("environment variable %s is not known: did you mean %s?", name, near)
		}
	}
}

// knownVariables returns the names of all settings and of the fields of the
// named things that there are.
func (l *loader) knownVariables() []string {
	known := slices.Clone(otherVariables)
	known = append(known, olderEndpoint)
	for _, n := range scalars() {
		known = append(known, envName(n.key))
		if older, ok := olderNames[n.key]; ok {
			known = append(known, older)
		}
	}
	for _, v := range elementVariables {
		for _, name := range l.cfg.names(v.list) {
			known = append(known, v.prefix+envForm(name)+v.suffix)
		}
	}
	return known
}

func (l *loader) warn(format string, args ...any) {
	l.cfg.warnings = append(l.cfg.warnings, fmt.Sprintf(format, args...))
}
