package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// env is what an application gets from this host.
type env struct {
	r        *replica
	app      durable.App
	settings any
	base     url.URL
	log      *slog.Logger
}

func (e *env) Namespace(class string) durable.Namespace { return e.r.objects.Namespace(class) }
func (e *env) Settings() any                            { return e.settings }
func (e *env) BaseURL() *url.URL                        { u := e.base; return &u }
func (e *env) Now() time.Time                           { return e.r.stores.KV.Clock() }
func (e *env) Replica() string                          { return e.r.id }
func (e *env) Version() string                          { return e.r.opts.Version }
func (e *env) HTTPClient() *http.Client                 { return e.r.client }
func (e *env) Logger() *slog.Logger                     { return e.log }
func (e *env) Background(work func(context.Context))    { e.r.objects.Background(work) }

// Loopback implements durable.Env. What has no listener cannot be reached.
func (e *env) Loopback() bool { return e.r.public == nil || e.r.public.Loopback() }

// Database implements durable.Env.
func (e *env) Database(name string) durable.Database {
	if d := e.r.databases[name]; d != nil && slices.Contains(e.app.Requires.Databases, name) {
		return d
	}
	panic(e.missing("SQL database", name))
}

// Bucket implements durable.Env.
func (e *env) Bucket(name string) durable.Bucket {
	if b := e.r.buckets.ByName[name]; b != nil && slices.Contains(e.app.Requires.Buckets, name) {
		return b
	}
	panic(e.missing("bucket", name))
}

// Cache implements durable.Env.
func (e *env) Cache(name string) durable.Cache {
	if c := e.r.caches[name]; c != nil && slices.Contains(e.app.Requires.Caches, name) {
		return c
	}
	panic(e.missing("cache", name))
}

// Secret implements durable.Env.
func (e *env) Secret(name string) string {
	if slices.Contains(e.app.Requires.Secrets, name) {
		if value, ok := e.r.secrets.get(name); ok {
			return value
		}
	}
	panic(e.missing("secret", name))
}

func (e *env) missing(what, name string) string {
	return fmt.Sprintf("application %s uses the %s %q without requiring it", e.app.Name, what, name)
}

// decodeSettings returns a copy of an application's default settings with
// those of its mount. A setting that the application does not have is an error.
func decodeSettings(app durable.App, settings map[string]any) (any, error) {
	if app.Settings == nil {
		if len(settings) > 0 {
			return nil, fmt.Errorf("application %s has no settings", app.Name)
		}
		return nil, nil
	}
	t := reflect.TypeOf(app.Settings)
	if t.Kind() != reflect.Pointer {
		return nil, fmt.Errorf("application %s: Settings is %s, want a pointer", app.Name, t)
	}
	out := reflect.New(t.Elem())
	out.Elem().Set(reflect.ValueOf(app.Settings).Elem())
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("settings of application %s: %w", app.Name, err)
	}
	if settings == nil {
		return out.Interface(), nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out.Interface()); err != nil {
		return nil, fmt.Errorf("settings of application %s: %w", app.Name, err)
	}
	return out.Interface(), nil
}
