package fleettest

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana"
)

const (
	labDB       = "sql:LAB_DB"
	primary     = "coordination"
	labSpace    = "lab"
	serverToken = canary + "-token"
)

// hooked begins a fault of the server's requests.
func hooked(hook func(ctx context.Context, r hrana.Request) hrana.Fault) func(*failing) func() {
	return func(x *failing) func() {
		x.f.Server.SetHook(hook)
		return func() { x.f.Server.SetHook(nil) }
	}
}

// every is the hook of one fault for all requests.
func every(f hrana.Fault) func(context.Context, hrana.Request) hrana.Fault {
	return func(context.Context, hrana.Request) hrana.Fault { return f }
}

// onCommit has a fault befall the next commit of an object, and then another one
// all requests.
func onCommit(f, then hrana.Fault) func(x *failing) func() {
	return func(x *failing) func() {
		first, after := once(), make(chan struct{})
		return hooked(func(_ context.Context, r hrana.Request) hrana.Fault {
			if isCommit(strings.Join(r.SQL, "\n")) && first() {
				close(after)
				return f
			}
			select {
			case <-after:
				return then
			default:
				return hrana.Fault{}
			}
		})(x)
	}
}

// wireFailures are those of the libSQL server.
var wireFailures = []failure{
	{
		name: "slow", title: "The libSQL server is slow",
		happens: "Its answers take long, but come within `libsql.timeout`.",
		alert:   "None by itself. `dwk_store_seconds` shows it; when it gets worse `DwkUnavailable`.",
		todo:    "Look at the server's load and disk, and at the network between it and the replicas: `dwk probe --repeat 20` measures round trips.",
		arm: hooked(func(ctx context.Context, _ hrana.Request) hrana.Fault {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			return hrana.Fault{}
		}),
		asks: []ask{
			{writeEvent, []answer{okay}, []string{trips(primary, "ok")}, all},
			{readEvent, []answer{okay}, nil, reads},
			{sqlWrite, []answer{okay}, []string{trips(labDB, "ok")}, all},
			{sqlRead, []answer{okay}, nil, reads},
		},
	},
	{
		name: "silent", title: "The libSQL server does not answer", hasty: true, unready: true,
		happens: "Requests get no answer within `libsql.timeout`: the server hangs, or a firewall drops packets.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`, then `DwkNoReadyReplica`.",
		todo:    "Restart the server, or mend the network. Replicas go on by themselves. What was answered 504 may have been done: callers repeat it with their operation ids, or look.",
		arm: hooked(func(ctx context.Context, _ hrana.Request) hrana.Fault {
			<-ctx.Done()
			return hrana.Fault{CutBefore: true}
		}),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "unknown"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{unknown}, []string{trips(labDB, "unknown")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "unknown")}, reads},
		},
	},
	{
		name: "requests cut", title: "Connections to the libSQL server break before it has got the request",
		happens: "The network or a proxy cuts connections. A replica cannot tell this from an answer that was lost.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`, then `DwkNoReadyReplica`.",
		todo:    "Mend the network. Replicas go on by themselves.",
		arm:     hooked(every(hrana.Fault{CutBefore: true})),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "unknown"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{unknown}, []string{trips(labDB, "unknown")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "unknown")}, reads},
		},
	},
	{
		name: "answers cut", title: "Connections to the libSQL server break before its answer has come",
		happens: "The server does what it is asked, and its answers are lost.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`, then `DwkNoReadyReplica`.",
		todo:    "Mend the network. Replicas go on by themselves. A batch on a SQL database that was answered 504 has been done here: repeat it only if that does no harm.",
		arm:     hooked(every(hrana.Fault{CutAfter: true})),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "unknown"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{unknown}, []string{trips(labDB, "unknown")}, all},
			{sqlRead, []answer{refused}, []string{trips(labDB, "unknown")}, reads},
		},
	},
	{
		name: "commit cut", title: "The request of a single commit is lost",
		happens: "One connection breaks, while others work.",
		alert:   "`DwkStoreFailing` when it happens often.",
		todo:    "Nothing. The replica has found out that nothing was applied, and has said so.",
		arm:     onCommit(hrana.Fault{CutBefore: true}, hrana.Fault{}),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "unknown"), events("object.commit.fenced")}, nothing},
		},
	},
	{
		name: "commit's answer cut", title: "The answer to a single commit is lost",
		happens: "One connection breaks, while others work.",
		alert:   "`DwkStoreFailing` when it happens often.",
		todo:    "Nothing. The replica has found its commit in the log.",
		arm:     onCommit(hrana.Fault{CutAfter: true}, hrana.Fault{}),
		asks: []ask{
			{writeEvent, []answer{okay}, []string{trips(primary, "unknown"), events("object.commit.ok")}, all},
		},
	},
	{
		name: "lost after a commit", title: "The libSQL server is lost in the midst of a commit", hasty: true,
		happens: "It was executing a commit when it, or the way to it, went away, and it stays away until the event's deadline.",
		alert:   "`DwkUnknownOutcomes`, `DwkStoreFailing`.",
		todo:    "Bring the server back. No replica can say what became of the commit before that: the object's next event sees it, whole or not at all.",
		arm:     onCommit(hrana.Fault{CutAfter: true}, hrana.Fault{CutBefore: true}),
		asks: []ask{
			{writeEvent, []answer{unknown}, []string{trips(primary, "unknown"), events("object.commit.unknown")}, either},
		},
	},
	{
		name: "429", title: "The libSQL server is asked for too much",
		happens: "It answers 429: more streams or requests at a time than it allows, or a plan's quota is used up.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`.",
		todo:    "Keep replicas x `libsql.max_conns` below the server's limit (128 by default), or raise it. Look at the plan's quota.",
		arm:     hooked(every(hrana.Fault{Status: http.StatusTooManyRequests})),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "refused"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{refused}, []string{trips(labDB, "refused")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "refused")}, reads},
		},
	},
	{
		name: "502", title: "A gateway before the libSQL server fails",
		happens: "It answers 502, 503 or 504. The server behind it may have executed the request.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`, then `DwkNoReadyReplica`.",
		todo:    "Look at the gateway and at the server's health.",
		arm:     hooked(every(hrana.Fault{Status: http.StatusBadGateway})),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "unknown"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{unknown}, []string{trips(labDB, "unknown")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "unknown")}, reads},
		},
	},
	{
		name: "busy", title: "The database is locked",
		happens: "Somebody else holds the write lock for longer than the server waits for it: a long transaction, a checkpoint, a backup.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`. `dwk_plans_waiting` grows when it is slow rather than locked.",
		todo:    "Find the long transaction: the server's own log and diagnostics. Applications keep those of `DB()` below a second.",
		arm:     hooked(every(hrana.Fault{Busy: true})),
		asks: []ask{
			{writeEvent, []answer{refused}, []string{events("lease.acquire.failed")}, nothing},
			{sqlWrite, []answer{refused}, nil, nothing},
			{sqlRead, []answer{okay}, []string{trips(labDB, "ok")}, reads},
		},
	},
	{
		name: "streams lost", title: "The libSQL server ends idle streams",
		happens: "It does so after 10 s, and forgets all of them at a restart.",
		alert:   "None.",
		todo:    "Nothing. Each call is one request that ends its own stream. A transaction of several calls, by `DB()`, is rolled back as a whole: its next statement fails with `ErrUnavailable`, and so does its commit.",
		arm: func(x *failing) func() {
			return hooked(func(context.Context, hrana.Request) hrana.Fault {
				return hrana.Fault{After: func(context.Context) { x.f.Server.LoseStreams() }}
			})(x)
		},
		asks: []ask{
			{writeEvent, []answer{okay}, []string{trips(primary, "ok")}, all},
			{readEvent, []answer{okay}, nil, reads},
			{sqlWrite, []answer{okay}, []string{trips(labDB, "ok")}, all},
			{sqlRead, []answer{okay}, nil, reads},
		},
	},
	{
		name: "restart", title: "The libSQL server is restarted",
		happens: "All connections break at once, and new ones are refused for a moment.",
		alert:   "None when it is short, else `DwkStoreFailing` and `DwkNoReadyReplica`.",
		todo:    "Nothing. Events wait for the server until their turn is over (`lease.acquire_timeout`), and are answered then.",
		arm: func(x *failing) func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				x.f.Server.Restart(300 * time.Millisecond)
			}()
			return func() { <-done }
		},
		asks: []ask{
			{writeEvent, []answer{okay, refused}, nil, either},
			{readEvent, []answer{okay, refused}, nil, reads},
			{sqlWrite, []answer{okay, refused, unknown}, nil, either},
			{sqlRead, []answer{okay, refused}, nil, reads},
		},
	},
	{
		name: "token revoked", title: "The token of the libSQL server is revoked", unready: true,
		happens: "The server answers 401 or 403: its keys were rotated, the token has expired, or was made for another database.",
		alert:   "`DwkStoreFailing`, then `DwkNoReadyReplica`.",
		todo:    "Make a new token, put it into the configuration (`libsql.token`, `databases[].token`) and restart the replicas one after the other. They read tokens at their start.",
		arm: func(x *failing) func() {
			x.f.Server.Reconfigure(func(c *hrana.Config) { c.Token = "another-" + canary })
			return func() { x.f.Server.Reconfigure(func(c *hrana.Config) { c.Token = serverToken }) }
		},
		asks: []ask{
			{writeEvent, []answer{refused}, []string{trips(primary, "refused"), events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{refused}, []string{trips(labDB, "refused")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "refused")}, reads},
		},
	},
	{
		name: "no namespace", title: "The namespace of a SQL database is missing", unready: true,
		happens: "The server answers 404: the namespace was deleted, or the replicas were pointed at another server. At its start a replica names it and exits.",
		alert:   "`DwkStoreFailing` for the one store, then `DwkNoReadyReplica`.",
		todo:    "Create the namespace by the server's own means and restore its data, or correct `databases[].namespace` and `url`.",
		arm: func(x *failing) func() {
			was := ""
			x.f.Server.Reconfigure(func(c *hrana.Config) { was, c.Namespaces = c.Namespaces, c.Namespaces+"-others" })
			return func() { x.f.Server.Reconfigure(func(c *hrana.Config) { c.Namespaces = was }) }
		},
		asks: []ask{
			{writeEvent, []answer{okay}, []string{trips(primary, "ok")}, all},
			{sqlWrite, []answer{refused}, []string{trips(labDB, "refused")}, nothing},
			{sqlRead, []answer{refused}, []string{trips(labDB, "refused")}, reads},
		},
	},
	{
		name: "disk full", title: "The libSQL server's disk is full",
		happens: "It cannot write, and says so; it can read. A quota on the database's size does the same.",
		alert:   "`DwkStoreFailing`, `DwkUnavailable`.",
		todo:    "Make room. Nothing else is to be repaired: what could not be written was refused. An object's event that only reads is refused too, as it takes the object's lease.",
		arm:     fillServerDisk,
		asks: []ask{
			{writeEvent, []answer{refused}, []string{events("lease.acquire.failed")}, nothing},
			{readEvent, []answer{refused}, nil, reads},
			{sqlWrite, []answer{refused}, []string{trips(labDB, "failed")}, nothing},
			{sqlRead, []answer{okay}, []string{trips(labDB, "ok")}, reads},
		},
	},
}

// startWireFailing starts a fleet on a server whose SQL database is a namespace.
func startWireFailing(t *testing.T, env ...string) *failing {
	f := New(t, File, env...)
	dir, small := smallDisk(t)
	if !small {
		dir = f.Dir
	}
	f.Server = startServer(t, hrana.Config{Path: filepath.Join(dir, "server", "primary.db"), Namespaces: filepath.Join(dir, "server", "ns"), Token: serverToken})
	if err := f.Server.h.CreateNamespace(labSpace); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.config())
	if err != nil {
		t.Fatal(err)
	}
	more := "libsql: {url: '" + f.Server.URL + "', token: " + serverToken + ", namespace: default}\ndatabases: [{name: LAB_DB, namespace: " + labSpace + "}]\n"
	if err := os.WriteFile(f.config(), append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	x := &failing{t: t, f: f, patient: f.Start(patientEnv...), hasty: f.Start(hastyEnv...)}
	if small {
		x.disk = dir
	}
	return x
}

// Whatever befalls the libSQL server, clients are told the truth, it is counted,
// and nothing is half done.
func TestWireFailures(t *testing.T) {
	t.Parallel()
	x := startWireFailing(t)
	x.run(t, wireFailures)
}

// fillServerDisk leaves the server no room, not even in its journal.
func fillServerDisk(x *failing) func() {
	if x.disk == "" {
		x.t.Skip("only root can mount a small file system")
	}
	for _, namespace := range []string{"default", labSpace} {
		a := send(x.t.Context(), http.MethodPost, x.f.Server.URL+"/v2/pipeline",
			`{"requests":[{"type":"execute","stmt":{"sql":"PRAGMA wal_checkpoint(TRUNCATE)"}},{"type":"close"}]}`,
			"Authorization", "Bearer "+serverToken, "X-Namespace", namespace)
		if a.Status != http.StatusOK {
			x.t.Fatal(a)
		}
	}
	must(x.t, x.patient.Post("sql", sqlText(`SELECT 1`))) // has the database open, with what it needs for that
	ballast := filepath.Join(x.disk, "ballast")
	fillDisk(x.t, ballast)
	return func() {
		if err := os.Remove(ballast); err != nil {
			x.t.Error(err)
		}
	}
}
