package host

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/metrics"
	"github.com/davidwkeith/dwk/internal/object"
	"github.com/davidwkeith/dwk/internal/server"
)

// mount builds the applications that the configuration names and the handlers
// of both listeners.
func (r *replica) mount() error {
	base, err := url.Parse(r.cfg.BaseURL)
	if err != nil {
		return fmt.Errorf("base_url: %w", err)
	}
	envs, err := r.environments(base)
	if err != nil {
		return err
	}
	apps := make([]durable.App, len(envs))
	for i, e := range envs {
		apps[i] = e.app
	}
	if err := r.require(apps); err != nil {
		return err
	}
	// All classes are registered before any application can call one.
	for _, e := range envs {
		if err := r.register(e); err != nil {
			return err
		}
		if err := r.consume(e); err != nil {
			return err
		}
	}
	r.watch(apps)
	if err := r.schedule(envs); err != nil {
		return err
	}
	var mounts []server.Mount
	for i, m := range r.cfg.Mounts {
		h, err := envs[i].app.New(envs[i])
		if err != nil {
			return fmt.Errorf("application %s at %s: %w", m.App, m.Path, err)
		}
		// Events bound their bodies; what a front door streams is its own affair.
		mounts = append(mounts, server.Mount{Path: m.Path, Handler: withRequestID(h)})
	}
	wellKnown, err := wellKnownHandlers(envs)
	if err != nil {
		return err
	}
	return r.handlers(base, mounts, wellKnown)
}

// environments makes the environment of each mount, in the order of the
// configuration.
func (r *replica) environments(base *url.URL) ([]*env, error) {
	if base.Path == "" {
		base.Path = "/" // else what is joined to it has no slash in front
	}
	byName := map[string]durable.App{}
	for _, a := range r.opts.Apps {
		byName[a.Name] = a
	}
	envs := make([]*env, len(r.cfg.Mounts))
	mounted := map[string]string{}
	for i, m := range r.cfg.Mounts {
		app, ok := byName[m.App]
		if !ok {
			return nil, fmt.Errorf("mount %s: there is no application %q in this program", m.Path, m.App)
		}
		if at, again := mounted[app.Name]; again {
			return nil, fmt.Errorf("application %s is mounted at %s and at %s: once is all", app.Name, at, m.Path)
		}
		mounted[app.Name] = m.Path
		settings, err := decodeSettings(app, m.Settings)
		if err != nil {
			return nil, err
		}
		envs[i] = &env{r: r, app: app, settings: settings, base: *base.JoinPath(m.Path), log: metrics.Uncounted(r.log).With("app", app.Name)}
	}
	return envs, nil
}

// register registers the classes of an application.
func (r *replica) register(e *env) error {
	for name, class := range e.app.Classes {
		if err := r.objects.Register(name, object.Class{New: class, App: e.app.Name, Env: e}); err != nil {
			return err
		}
	}
	return nil
}

// wellKnownHandlers builds the handlers of well-known names.
func wellKnownHandlers(envs []*env) (map[string]http.Handler, error) {
	all, whose := map[string]http.Handler{}, map[string]string{}
	for _, e := range envs {
		for name, build := range e.app.WellKnown {
			if other, taken := whose[name]; taken {
				return nil, fmt.Errorf("/.well-known/%s is served by two applications, %s and %s", name, other, e.app.Name)
			}
			whose[name] = e.app.Name
			h, err := build(e)
			if err != nil {
				return nil, fmt.Errorf("application %s at /.well-known/%s: %w", e.app.Name, name, err)
			}
			all[name] = withRequestID(h)
		}
	}
	return all, nil
}
