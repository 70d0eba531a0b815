package config

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxName bounds the names of things, in bytes.
const maxName = 64

var (
	namePattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)
	mountPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)
)

// reservedPaths are answered by the host, or given to applications apart from
// their mounts.
var reservedPaths = []string{"/.well-known", "/healthz", "/readyz"}

func (c *checker) lists() {
	for _, list := range []string{"queues", "databases", "buckets", "caches", "secrets", "crons"} {
		for i, name := range c.names(list) {
			c.name(elementKey(list, i)+".name", name)
		}
	}
	// Queues and schedules are named in the store, the other things to
	// applications only, by names that are also variables.
	c.unique("queues")
	c.unique("crons")
	c.unique("databases", "buckets", "caches", "secrets")
	for i, d := range c.Databases {
		if d.URL == "" && strings.EqualFold(d.Name, coordinationName) {
			c.fail(elementKey("databases", i)+".name", "%s is the file of the coordination database: give it a url or another name", d.Name)
		}
	}
	for i, s := range c.Secrets {
		if s.From.IsZero() {
			c.fail(elementKey("secrets", i)+".from", "required")
		}
	}
	c.mounts()
	c.crons()
}

func (c *checker) name(key, name string) {
	switch {
	case name == "":
		c.fail(key, "required")
	case len(name) > maxName:
		c.fail(key, "longer than %d characters", maxName)
	case !namePattern.MatchString(name):
		c.fail(key, "%q is not a name: letters, digits, _ and -, not beginning with a digit or -", name)
	}
}

// unique checks that no two things of the lists have names that are the same
// but for case, "-" and "_": files and variables would be the same.
func (c *checker) unique(lists ...string) {
	seen := map[string]string{}
	for _, list := range lists {
		for i, name := range c.names(list) {
			key := elementKey(list, i)
			form := envForm(name)
			if other, ok := seen[form]; ok && name != "" {
				c.fail(key+".name", "%s clashes with the name of %s", name, other)
				continue
			}
			seen[form] = key
		}
	}
}

func (c *checker) mounts() {
	for i, m := range c.Mounts {
		key := elementKey("mounts", i)
		c.name(key+".app", m.App)
		if len(m.Path) > 1024 || !strings.HasPrefix(m.Path, "/") || !mountPattern.MatchString(m.Path) || path.Clean(m.Path) != m.Path {
			c.fail(key+".path", "%.80q is not a clean path such as /lab", m.Path)
			continue
		}
		for _, reserved := range reservedPaths {
			if nested(m.Path, reserved) {
				c.fail(key+".path", "%s is reserved", reserved)
			}
		}
		for j, other := range c.Mounts[:i] {
			if m.Path == "/" && other.Path != "/" || other.Path == "/" && m.Path != "/" {
				continue // the root gets what no other mount answers
			}
			if nested(m.Path, other.Path) || nested(other.Path, m.Path) {
				c.fail(key+".path", "%s overlaps %s of %s", m.Path, other.Path, elementKey("mounts", j))
			}
		}
	}
}

// nested reports whether inner is outer or below it, in any case: two paths
// that differ in case only confuse people.
func nested(inner, outer string) bool {
	inner, outer = strings.ToLower(inner), strings.ToLower(outer)
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}

func (c *checker) crons() {
	for i, cron := range c.Crons {
		key := elementKey("crons", i)
		if c.name(key+".app", cron.App); cron.App != "" && !slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.App == cron.App }) {
			c.fail(key+".app", "%s is not mounted", cron.App)
		}
		if _, err := time.LoadLocation(cron.Zone); err != nil || cron.Zone == "Local" {
			c.fail(key+".zone", "%q is not a time zone such as Europe/Berlin", cron.Zone)
		}
	}
}
