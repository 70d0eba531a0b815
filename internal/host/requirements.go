package host

import (
	"fmt"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/cache"
)

// require checks that the configuration has all that the applications require,
// and opens the secrets and caches among it. The error names all that is
// missing.
func (r *replica) require(apps []durable.App) error {
	r.secrets, r.caches = newSecrets(r.log), map[string]*cache.Cache{}
	for _, c := range r.cfg.Caches {
		r.caches[c.Name] = cache.New(c.MaxEntries, c.TTL)
	}
	var missing []string
	for _, app := range apps {
		if list := r.missing(app); len(list) > 0 {
			missing = append(missing, app.Name+" requires "+strings.Join(list, ", "))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the configuration lacks what applications need: %s", strings.Join(missing, "; "))
	}
	return nil
}

func (r *replica) missing(app durable.App) (missing []string) {
	q := app.Requires
	lacks := func(what string, names []string, has func(string) bool) {
		for _, name := range names {
			if !has(name) {
				missing = append(missing, what+" "+name)
			}
		}
	}
	lacks("SQL database", q.Databases, func(name string) bool { return r.databases[name] != nil })
	lacks("bucket", q.Buckets, func(name string) bool { return r.buckets.ByName[name] != nil })
	lacks("queue", usedQueues(app), func(name string) bool { _, ok := r.queue(name); return ok })
	lacks("cache", q.Caches, func(name string) bool { return r.caches[name] != nil })
	for _, name := range q.Secrets {
		secret, ok, err := r.cfg.NamedSecret(name)
		switch {
		case err != nil:
			missing = append(missing, fmt.Sprintf("secret %s (%v)", name, err))
		case !ok:
			missing = append(missing, "secret "+name)
		default:
			r.secrets.add(name, secret)
		}
	}
	return missing
}
