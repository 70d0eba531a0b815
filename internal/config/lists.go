package config

import "time"

// Queue is a queue and how it is consumed.
type Queue struct {
	Name          string        `key:"name" help:"Name."`
	Batch         int           `key:"batch" default:"10" max:"1000" help:"Messages that a consumer gets at once at most."`
	Concurrency   int           `key:"concurrency" default:"1" max:"1000" help:"Batches that a replica works on at the same time."`
	Visibility    time.Duration `key:"visibility" default:"30s" min:"1s" help:"How long a message stays claimed; renewed while its consumer runs."`
	MaxAttempts   int           `key:"max_attempts" default:"5" help:"Deliveries before a message goes to the dead letters."`
	Backoff       time.Duration `key:"backoff" default:"1s" min:"0s" help:"Wait before the second delivery; it doubles each time."`
	DeadRetention time.Duration `key:"dead_retention" default:"336h" help:"How long dead letters are kept."`
}

// Database is a SQL binding.
type Database struct {
	Name      string `key:"name" help:"Name of the binding."`
	URL       string `key:"url" help:"libsql://, https:// or http:// address, or file:PATH. Empty: with a namespace the server of libsql.url, else a file in the embedded store."`
	Token     Secret `key:"token" help:"Authentication token. Empty: at the server of libsql.url its token, elsewhere none."`
	Namespace string `key:"namespace" help:"Namespace at a server that has several."`
}

// Bucket is a bucket binding.
type Bucket struct {
	Name     string `key:"name" help:"Name of the binding."`
	URL      string `key:"url" help:"As object_store.url, whose keys it uses. Empty: a prefix of object_store."`
	ReadOnly bool   `key:"read_only" default:"false" help:"Refuse puts and deletes. Keys need no right to write then."`
}

// Cache is a cache of each replica.
type Cache struct {
	Name       string        `key:"name" help:"Name of the binding."`
	MaxEntries int           `key:"max_entries" default:"10000" help:"Entries at most; the least recently used one goes."`
	TTL        time.Duration `key:"ttl" default:"10m" help:"How long an entry lives at most."`
}

// NamedSecret is a secret for applications.
type NamedSecret struct {
	Name string `key:"name" help:"Name of the binding."`
	From Secret `key:"from" help:"env:NAME, file:/path, or the value itself."`
}

// Cron changes a schedule that an application brings.
type Cron struct {
	App        string        `key:"app" help:"The application that brings the schedule."`
	Name       string        `key:"name" help:"Name of the schedule."`
	Schedule   string        `key:"schedule" help:"Five fields, @every D, @hourly, @daily ... Empty: the application's own."`
	Zone       string        `key:"zone" default:"UTC" help:"Time zone of the five fields."`
	Paused     bool          `key:"paused" default:"false" help:"Do not run it."`
	Overlap    string        `key:"overlap" default:"skip" oneof:"skip,allow" help:"What an occurrence does while the one before still runs."`
	CatchUp    time.Duration `key:"catch_up" default:"1h" min:"0s" help:"How long an occurrence that was missed is made up for, at least until the next one."`
	Timeout    time.Duration `key:"timeout" default:"15m" help:"How long a run may take."`
	AtMostOnce bool          `key:"at_most_once" default:"false" help:"Do not repeat a run that a crash cut off."`
}

// Mount places an application at a path.
type Mount struct {
	Path     string         `key:"path" help:"Path under which it answers."`
	App      string         `key:"app" help:"Name of the application."`
	Settings map[string]any `key:"settings" default:"{}" help:"The application's own settings."`
}

// labApp is the application of the embedded default.
const labApp = "lab"

// setListDefaults gives c the lists that apply where the file has none of its
// own. All but the queue are there for the lab, and go when it is not mounted.
func (c *Config) setListDefaults() {
	c.Queues = []Queue{newElement[Queue]("default")}
	c.Databases = []Database{newElement[Database]("LAB_DB")}
	c.Buckets = []Bucket{newElement[Bucket]("LAB_FILES")}
	c.Caches = []Cache{newElement[Cache]("LAB_CACHE")}
	c.Secrets = []NamedSecret{}
	cron := newElement[Cron]("every-five")
	cron.App, cron.Schedule = labApp, "@every 5s"
	c.Crons = []Cron{cron}
	c.Mounts = []Mount{{Path: "/lab", App: labApp, Settings: map[string]any{}}}
}
