package durable

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// An App is what a program hosts. It is registered once, with dwk.Main, and
// mounted at a path by configuration.
type App struct {
	// Name is what the configuration calls the application, such as "lab".
	Name string
	// Summary is one line about the application, for the help of its Commands.
	Summary string
	// New builds the stateless front door. It is called once for the mount, at
	// start, and an error stops the start. The handler sees paths below the
	// mount: "/" is the mount itself.
	New func(Env) (http.Handler, error)
	// WellKnown builds handlers of "/.well-known/<name>" and the paths below it,
	// by name, each once, after New. Such paths belong to the host name and not to
	// a mount: the handlers see the whole path, and two mounted applications
	// cannot have the same name.
	WellKnown map[string]func(Env) (http.Handler, error)
	// Commands are what operators of the application can do, beside the replicas:
	// see [Command].
	Commands []Command
	// Classes are the object classes that the application brings, by name. A
	// name is unique in a replica and never changes: objects are stored by it.
	Classes map[string]Class
	// Consumers are the handlers of queues, by queue name.
	Consumers map[string]Consumer
	// Crons are the application's schedules.
	Crons []Cron
	// Requires names the bindings that must be configured before the
	// application starts.
	Requires Requirements
	// Settings is a pointer to a struct that holds the defaults of the
	// application's own configuration (decoded by its `json` tags), or nil when
	// it has none. [Env.Settings] returns the decoded copy.
	Settings any
}

// A Class constructs an instance of an object. It is called within an event;
// what it writes belongs to that event. Instances are a cache: an instance may
// be dropped between any two events, and everything that must last belongs in
// State.SQL.
type Class func(State, Env) (Object, error)

// An Object handles the requests of one durable object, one at a time.
type Object interface{ http.Handler }

// An Alarmer is an Object that has an alarm.
type Alarmer interface {
	// Alarm runs when the object's alarm is due. While it runs the slot is
	// empty; an error or panic has it run again later.
	Alarm(ctx context.Context, info AlarmInfo) error
}

// AlarmInfo describes one run of an alarm.
type AlarmInfo struct {
	// Due is the time that was asked for.
	Due time.Time
	// RetryCount is the number of runs of this alarm that failed before.
	RetryCount int
}

// Requirements are the names of the bindings and secrets that an application
// needs. All that is missing is listed when a replica starts.
type Requirements struct {
	Databases []string
	Buckets   []string
	Queues    []string
	Caches    []string
	Secrets   []string
}

// A Consumer handles a batch of messages of one queue. A message that is
// neither acknowledged nor retried when the consumer returns is delivered
// again.
type Consumer func(ctx context.Context, env Env, batch Batch) error

// A Batch is a set of messages delivered together.
type Batch interface {
	Queue() string
	Messages() []Message
}

// A Message is one delivery of a queue's message.
type Message interface {
	ID() string
	// Body is the JSON text as it was sent.
	Body() json.RawMessage
	// Attempts is 1 on the first delivery.
	Attempts() int
	Timestamp() time.Time
	Ack()
	Retry(after time.Duration)
}

// A Cron is a schedule of an application.
type Cron struct {
	// Name is unique in a replica.
	Name string
	// Schedule is a five-field expression or an @-word; the configuration may
	// replace it.
	Schedule string
	Run      func(ctx context.Context, env Env, o Occurrence) error
}

// An Occurrence is one instant of a schedule.
type Occurrence struct {
	Name    string
	At      time.Time
	Attempt int
}

// Env is what an application gets from its host.
type Env interface {
	// Namespace gives access to the objects of a class of any mounted
	// application. It panics when no such class is registered.
	Namespace(class string) Namespace
	// Database, Bucket, Queue, Cache and Secret return a binding that the
	// application named in its Requirements. They panic on any other name. A
	// secret that comes from a file is read again when the file has changed: ask
	// for it where you use it.
	Database(name string) Database
	Bucket(name string) Bucket
	Queue(name string) Queue
	Cache(name string) Cache
	Secret(name string) string
	// Settings returns a pointer to the application's decoded settings, of the
	// type of App.Settings, or nil.
	Settings() any
	// BaseURL is the public URL of the mount. Links are built from it and never
	// from the request's Host. The caller owns the copy.
	BaseURL() *url.URL
	// Loopback reports whether the replica's public listener can be reached
	// from its own machine only.
	Loopback() bool
	// Now is the fleet's time: the clock of the primary.
	Now() time.Time
	// Replica is the id of this replica, and Version that of the program.
	Replica() string
	Version() string
	// HTTPClient is for addresses that strangers chose: it refuses private
	// networks and bounds time, redirects and size. Within an event a call
	// first commits what the event wrote.
	HTTPClient() *http.Client
	Logger() *slog.Logger
	// Background runs work that outlives the response; a stopping replica waits
	// for it. Started within an event it begins after the event's last commit,
	// and not at all when that is refused. The context ends when the replica
	// can wait no longer.
	Background(work func(ctx context.Context))
}

// A Namespace is the set of all objects of one class.
type Namespace interface {
	// ID returns the id of the object with this name.
	ID(name string) ID
	// UniqueID returns a new random id.
	UniqueID() ID
	// Get returns a stub for the object. It does not touch the object.
	Get(id ID) Stub
}

// A Stub sends requests to one object, wherever it runs.
type Stub interface {
	// ServeHTTP delivers the request as an event of the object and writes the
	// answer. Failures of the host become statuses: 503 is surely not applied,
	// 504 could not be found out, 500 is a failed handler. When an event of another
	// object hands its own answer over so, such a failure ends that event too, as a
	// panic does: nothing of it since its last commit is applied. A request for a
	// WebSocket goes through ServeHTTP, from a front door.
	http.Handler
	ID() ID
	// Do delivers the request as an event and returns the object's answer,
	// whose Body the caller closes. An error is the host's: see
	// [ContendedError], [ErrOverloaded], [ErrFenced], [ErrUnavailable],
	// [ErrUnknownOutcome], [ErrHandlerFailed] and [ErrCycle]. Within an event the
	// call ends with that event's context.
	Do(r *http.Request) (*http.Response, error)
}
