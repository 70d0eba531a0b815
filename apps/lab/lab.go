// Package lab is an open console on durable objects: every operation can be
// tried by hand or by a script. The documentation, the load tests and the
// failure tests drive it.
//
// Paths below the mount:
//
//	GET  /                              a page that lists the paths
//	GET  /whoami                        {"replica","version"}
//	GET  /counter/{name}                {"name","value"}, 0 for a new one
//	POST /counter/{name}/add?n=1&op=ID  adds n once for each op, same answer
//	GET  /counter/{name}/ops            {"name","ops":[{"op","n","value"}]} in order
//	POST /counter/{name}/move?to=NAME&n=1&op=ID
//	                                    takes n from it and adds it to another one, once for
//	                                    each op: 502 says that a part is missing, repeat it
//	GET  /counter/{name}/moves          {"name","moves":[{"op","to","n","done"}]} in order
//	PUT  /note/{name}                   stores the body: 201 or 204, with ETag
//	GET  /note/{name}                   returns it
//	POST /note/{name}/sql               runs statements in the note's database
//	POST /note/{name}/sleep?ms=         an event that writes, waits and writes
//	GET  /note/{name}/sleeps            {"name","sleeps":[...]}: what it wrote
//	POST /alarm/{name}?in=2s&fail=N     sets the object's alarm; its first N runs fail
//	GET  /alarm/{name}                  {"name","pending","firings","attempts"}: the runs
//	                                    that were committed, and those that were begun
//	DELETE /alarm/{name}                there is no alarm: 204
//	GET  /room/{name}/socket            a WebSocket. What is sent, a text or {"op","text"}, is
//	                                    stored, once for each op, and every socket of the room
//	                                    gets {"seq","op"?,"text","at","replica"} in order. A
//	                                    {"seq"} without text says: read the messages up to it
//	GET  /room/{name}/messages?after=   {"name","messages":[...]}: 1,000 from the one after a
//	                                    seq on
//	POST /room/{name}/messages          stores the body as a message
//	GET  /cron/runs                     {"runs":[{"name","at","attempt","replica","began","ended"}]}:
//	                                    what the schedule "every-five" has run
//	POST /sql                           runs statements in the SQL binding: as for a
//	                                    note, each by itself, or in one transaction
//	                                    with {"statements":[...],"batch":true}
//	POST /queue/default/send?delay=&n=  sends the JSON body, n copies of it
//	GET  /queue/default/seen?after=     {"name","seen":[{"seq","id","attempts","replica","at","body"}]}:
//	                                    deliveries, 1,000 from the one after a seq on
//	PUT  /bucket/{key...}               stores the body, its Content-Type and X-Meta-*
//	GET  /bucket/{key...}               returns them, or the part that Range names
//	DELETE /bucket/{key...}             204, also when there is none
//	GET  /bucket/?prefix=&delimiter=&cursor=&limit=
//	                                    {"objects":[{"key","size","etag","uploaded"}],"prefixes","cursor"}
//
// X-Meta-* values are percent-encoded UTF-8. PUT with If-None-Match: * stores
// only what is new.
//
// The lab consumes its queue. A body with "fail": k fails its first k deliveries,
// with "unacked": k it is not acknowledged in so many, and with "sleep": ms the
// consumer takes its time.
//
// Errors are {"error": text}.
package lab

import (
	_ "embed"
	"errors"
	"net/http"

	"github.com/davidwkeith/dwk/durable"
)

// Settings are the application's own configuration.
type Settings struct {
	// AllowRemote lets the lab start on a listener that other machines can
	// reach: whoever reaches it can read and change everything in it.
	AllowRemote bool `json:"allow_remote"`
	// CronSleepMs is how long each run of the schedule takes, in milliseconds.
	CronSleepMs int64 `json:"cron_sleep_ms"`
}

// App returns the application.
func App() durable.App {
	return durable.App{
		Name:      "lab",
		New:       newFront,
		Classes:   map[string]durable.Class{"Counter": newCounter, "Note": newNote, "Timer": newTimer, "Room": newRoom},
		Requires:  durable.Requirements{Databases: []string{databaseName}, Buckets: []string{bucketName}, Queues: []string{queueName}},
		Consumers: map[string]durable.Consumer{queueName: consume},
		Crons:     []durable.Cron{everyFive()},
		Settings:  &Settings{},
	}
}

//go:embed index.html
var indexPage []byte

// front is the stateless part: it refuses what no event is needed to refuse.
type front struct {
	env   durable.Env
	hosts hosts
	files *files
	sql   *database
	queue *queues
}

func newFront(env durable.Env) (http.Handler, error) {
	settings, _ := env.Settings().(*Settings)
	if !env.Loopback() && (settings == nil || !settings.AllowRemote) {
		return nil, errors.New("the lab is an open console, and other machines can reach this listener: " +
			"listen on a loopback address, or set allow_remote: true in the settings of its mount")
	}
	db := newDatabase(env)
	if err := prepare(db.db); err != nil {
		return nil, err
	}
	return &front{env: env, hosts: newHosts(env.BaseURL()), files: newFiles(env), sql: db, queue: newQueues(env, db)}, nil
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if status, text := f.hosts.refusal(r); status != 0 {
		writeError(w, status, text)
		return
	}
	t, ok := parseTarget(r)
	if !ok {
		writeError(w, http.StatusNotFound, "no such path")
		return
	}
	if !t.allowed(w, r) {
		return
	}
	switch t.kind {
	case "":
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Write(indexPage) //nolint:errcheck // the client is gone
	case "whoami":
		writeJSON(w, http.StatusOK, struct {
			Replica string `json:"replica"`
			Version string `json:"version"`
		}{f.env.Replica(), f.env.Version()})
	case "cron":
		f.sql.serveRuns(w, r)
	case "sql":
		f.sql.serve(w, r)
	case "queue":
		f.queue.serve(w, r, t)
	case "bucket":
		f.files.serve(w, r, t)
	default:
		if err := checkName(t.name); err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		ns := f.env.Namespace(classes[t.kind])
		ns.Get(ns.ID(t.name)).ServeHTTP(w, r)
	}
}
