// Package config is the program's configuration: one typed struct, filled from
// defaults, a YAML file, the environment and flags, each of which wins over
// those before it.
//
// The struct tags of Config are the whole schema: the loader, the validation,
// the commented reference file and the listing of effective values are all
// derived from them.
//
//	key      the name in the file; "a.b" of nested names is the dotted key
//	default  the default, as it would be written in the file
//	help     what it means
//	oneof    the values that are allowed, separated by commas
//	min, max the bounds of a quantity; without min it must be positive
package config

import "time"

// Config holds every setting. Lists and values that are left empty mean what
// their help says; the methods whose names end in OrDefault put in the paths
// and URLs that an empty value stands for.
type Config struct {
	BaseURL     string        `key:"base_url" default:"http://localhost:8080" help:"URL under which clients reach the fleet. Applications see it whatever Host a request names. https, except on localhost or with dev."`
	Listen      string        `key:"listen" default:"127.0.0.1:8080" help:"Address of the public listener, host:port; an empty host means all interfaces."`
	Dev         bool          `key:"dev" default:"false" help:"Development: allows a base_url of plain http on any host."`
	PublicDir   string        `key:"public_dir" help:"Directory of static files, served where no application is mounted. Empty: none."`
	DataDir     string        `key:"data_dir" default:"./data" help:"Directory of the embedded stores, which lie in its folder central. Refused while it still holds stores of the local mode."`
	ReplicaDir  string        `key:"replica_dir" help:"Directory of the mirrors; each process locks a folder of its own in it. Empty: the folder mirrors of data_dir."`
	Admin       Admin         `key:"admin" help:"The admin listener: health, metrics, drain."`
	Clients     Clients       `key:"clients" help:"How slow clients of the public listener may be. Only the time spent waiting for them counts."`
	TLS         TLS           `key:"tls" help:"TLS of the public listener. Empty: plain http, as behind a proxy."`
	LibSQL      LibSQL        `key:"libsql" help:"The coordination database, which also holds the object logs."`
	ObjectStore ObjectStore   `key:"object_store" help:"Where buckets and large log entries are kept."`
	Lease       Lease         `key:"lease" help:"The right to run an object's events."`
	Event       Event         `key:"event" help:"One delivery to an object: a request, an alarm, a socket message."`
	Objects     Objects       `key:"objects" help:"The objects' databases and their log."`
	Alarms      Alarms        `key:"alarms" help:"Alarms of objects."`
	Sockets     Sockets       `key:"sockets" help:"WebSockets of objects."`
	Fleet       Fleet         `key:"fleet" help:"What each replica does at regular times."`
	Drain       Drain         `key:"drain" help:"How a replica ends."`
	Log         Log           `key:"log" help:"Logs on stderr."`
	Otel        Otel          `key:"otel" help:"Traces."`
	Queues      []Queue       `key:"queues" help:"Queues that this replica consumes or sends to."`
	Databases   []Database    `key:"databases" help:"SQL bindings. DWK_DATABASE_<NAME>_URL and DWK_DATABASE_<NAME>_TOKEN set one from the environment."`
	Buckets     []Bucket      `key:"buckets" help:"Bucket bindings. DWK_BUCKET_<NAME>_URL sets one from the environment."`
	Caches      []Cache       `key:"caches" help:"Caches: in memory, one a replica, never shared."`
	Secrets     []NamedSecret `key:"secrets" help:"Secrets for applications. DWK_SECRET_<NAME> sets one from the environment."`
	SecretsDir  string        `key:"secrets_dir" help:"Directory in which each file is a secret for applications, by its name, as containers mount them. Empty: none."`
	Crons       []Cron        `key:"crons" help:"Schedules of the mounted applications that differ from the ones they bring."`
	Mounts      []Mount       `key:"mounts" help:"Applications and the paths at which they answer."`

	file     string            // the file it was loaded from, or ""
	origins  map[string]string // of every key that is no default
	warnings []string          // found while loading
}

// File returns the path of the configuration file, "" for the embedded default.
func (c *Config) File() string { return c.file }

// Admin is the admin listener.
type Admin struct {
	Listen         string `key:"listen" default:"127.0.0.1:9080" help:"Address of the admin listener, host:port."`
	Token          Secret `key:"token" help:"Bearer token that it asks for. Required unless it listens on a loopback address."`
	Pprof          bool   `key:"pprof" default:"false" help:"Serve Go's profiles under /debug/pprof/."`
	HealthOnPublic bool   `key:"health_on_public" default:"false" help:"Answer /healthz and /readyz on the public listener too."`
}

// Clients bounds how slow clients may be.
type Clients struct {
	Stall       time.Duration `key:"stall" default:"10s" min:"100ms" max:"1h" help:"Time over which a request's body must bring at least 1 KiB a second; slower ones are answered 408."`
	MinRate     Size          `key:"min_rate" default:"16KiB" min:"0B" help:"Least rate of a request's body on average, in bytes a second, after its first minute. 0B: none."`
	SendTimeout time.Duration `key:"send_timeout" default:"2m" min:"100ms" max:"24h" help:"How long each 64 KiB of an answer may wait for its client; then the connection is cut."`
}

// TLS names the certificate of the public listener.
type TLS struct {
	Cert string `key:"cert" help:"File of the certificate chain, PEM."`
	Key  string `key:"key" help:"File of the private key, PEM."`
}

// LibSQL is the coordination database.
type LibSQL struct {
	URL       string        `key:"url" help:"libsql://, https:// or http:// address of the primary, or file:PATH. Empty: a file in data_dir."`
	Token     Secret        `key:"token" help:"Authentication token."`
	Namespace string        `key:"namespace" help:"Namespace at a server that has several. Empty: what the host name says."`
	CA        string        `key:"ca" help:"File of certificates to trust besides the system's, PEM."`
	Timeout   time.Duration `key:"timeout" default:"5s" help:"Bound of one round trip."`
	MaxConns  int           `key:"max_conns" default:"16" max:"1024" help:"Connections to each database at most."`
}

// ObjectStore is the S3-compatible store or directory.
type ObjectStore struct {
	URL       string        `key:"url" help:"s3://bucket/prefix, https://endpoint/bucket/prefix or file:DIR. Empty: a directory in data_dir."`
	AccessKey Secret        `key:"access_key" help:"Access key id."`
	SecretKey Secret        `key:"secret_key" help:"Secret access key."`
	Region    string        `key:"region" help:"Region to sign for. Empty: what the store says."`
	PathStyle string        `key:"path_style" default:"auto" oneof:"auto,true,false" help:"Bucket in the path (true) or in the host name (false)."`
	CA        string        `key:"ca" help:"File of certificates to trust besides the system's, PEM."`
	Timeout   time.Duration `key:"timeout" default:"30s" help:"Bound of one request without its body, and of a body's standstill."`
}

// Lease is the right to run an object's events.
type Lease struct {
	TTL            time.Duration `key:"ttl" default:"10s" min:"500ms" max:"10m" help:"How long a lease outlives its last renewal: the longest that an object waits after a replica died."`
	AcquireTimeout time.Duration `key:"acquire_timeout" default:"5s" help:"How long an event waits for its turn before it is answered 503."`
	Waiters        int           `key:"waiters" default:"64" max:"100000" help:"Events of one object that wait on one replica at most; the next is answered 503."`
}

// Event bounds one delivery to an object.
type Event struct {
	Timeout   time.Duration `key:"timeout" default:"30s" max:"1h" help:"Deadline of an event, from its arrival."`
	BodyLimit Size          `key:"body_limit" default:"64MiB" help:"Largest request body."`
	Buffer    Size          `key:"buffer" default:"1MiB" help:"Output of an event that is held in memory until its commit; more goes to disk."`
	Spool     Size          `key:"spool" default:"64MiB" help:"Output of an event that is held at all; one that wants more has to flush."`
}

// Objects are the objects' databases.
type Objects struct {
	Idle        time.Duration `key:"idle" default:"5m" help:"How long an object stays in memory after its last event."`
	Linger      time.Duration `key:"linger" default:"200ms" min:"0s" max:"10s" help:"How long the lease of an object that gets one event after the other is kept behind the last one, as long as no other replica wants it. 0s: not at all."`
	Resident    int           `key:"resident" default:"10000" help:"Objects in memory at most."`
	Memory      Size          `key:"memory" default:"0B" min:"0B" help:"Memory of the objects' databases at most, without what applications keep beside them. 0B: a quarter of what the process may use."`
	CacheSize   Size          `key:"cache_size" default:"200KiB" help:"Page cache of each open database."`
	InlineLimit Size          `key:"inline_limit" default:"256KiB" max:"1MiB" help:"Log entries up to this size are kept in the coordination database, larger ones in the object store."`
	MaxSize     Size          `key:"max_size" default:"10GiB" help:"Largest database of one object."`
	Retention   Retention     `key:"retention" help:"Positions that an object can be brought back to."`
}

// Retention says how much of an object's log is kept.
type Retention struct {
	Full     time.Duration `key:"full" default:"15m" help:"Every position for this long ..."`
	FullSize Size          `key:"full_size" default:"64MiB" help:"... but no more of them than this for one object."`
	Hourly   time.Duration `key:"hourly" default:"24h" help:"Then one position an hour for this long."`
}

// Alarms says how alarms are retried.
type Alarms struct {
	Retries int           `key:"retries" default:"6" min:"0" max:"100" help:"Retries of a failing alarm before it goes to the dead letters."`
	Backoff time.Duration `key:"backoff" default:"2s" help:"Wait before the first retry; it doubles each time."`
	Batch   int           `key:"batch" default:"100" max:"1000" help:"Alarms that one poll takes at most."`
}

// Sockets bounds WebSockets.
type Sockets struct {
	Max          int           `key:"max" default:"10000" max:"1000000" help:"Sockets on one replica at most; the next is answered 503. The process's limit of open files bounds them too: what is beyond 10,000 of it, at least a quarter."`
	MessageLimit Size          `key:"message_limit" default:"1MiB" max:"64MiB" help:"Largest message that comes in, decompressed; a larger one closes its socket with 1009."`
	QueueLimit   Size          `key:"queue_limit" default:"1MiB" help:"What may wait for a slow reader; more closes its socket with 1008."`
	Incoming     Size          `key:"incoming_limit" default:"256MiB" help:"What all sockets together may hold of messages that come in or wait for their object; the one that would exceed it is closed with 1013. At least message_limit."`
	Ping         time.Duration `key:"ping" default:"30s" min:"100ms" help:"How long a socket may be silent before it is pinged."`
	Timeout      time.Duration `key:"timeout" default:"10s" min:"100ms" help:"How long the answer to a ping, or writing to a socket, may take before it is cut off."`
	Idle         time.Duration `key:"idle" default:"0s" min:"0s" help:"How long a socket may go without a message in either direction before it is closed with 1000; 0s is for ever."`
}

// Fleet is what each replica does at regular times.
type Fleet struct {
	PollInterval time.Duration `key:"poll_interval" default:"1s" min:"10ms" help:"Time between two polls for due work."`
	HeartbeatTTL time.Duration `key:"heartbeat_ttl" default:"15s" help:"How long a replica counts as alive after its last poll."`
	SweepBatch   int           `key:"sweep_batch" default:"500" max:"100000" help:"Expired rows that one poll removes at most."`
}

// Drain is how a replica ends.
type Drain struct {
	Grace      time.Duration `key:"grace" default:"5s" min:"0s" help:"Time between failing readiness and closing the listener, for load balancers to notice."`
	Timeout    time.Duration `key:"timeout" default:"40s" help:"Bound of the whole drain; what is left then is named and given up."`
	SocketCode int           `key:"socket_code" default:"1001" oneof:"1001,1012" help:"Close code that WebSockets get: 1001 is going away, 1012 restart."`
}

// Log is the log on stderr.
type Log struct {
	Level  string `key:"level" default:"info" oneof:"debug,info,warn,error" help:"The least level that is logged."`
	Format string `key:"format" default:"auto" oneof:"auto,json,text" help:"auto is text on a terminal, else json."`
}

// Otel is where traces go.
type Otel struct {
	Endpoint string  `key:"endpoint" help:"OTLP endpoint over http, as in http://localhost:4318. Empty: no traces."`
	Sample   float64 `key:"sample" default:"0.1" min:"0" max:"1" help:"Share of the events that is traced."`
}
