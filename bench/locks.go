package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
	"github.com/davidwkeith/dwk/internal/hrana"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/lease"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// lockTTL is the lifetime of what is taken, on both sides.
const lockTTL = 10 * time.Second

// locks compares leases with the mutexes of etcd's client. An operation takes a
// lock of the client's own and gives it back: nothing is contended.
func locks(ctx context.Context, o options, r *figures.Beside) error {
	for _, clients := range []int{1, 16} {
		name := fmt.Sprintf("locks, %d clients", clients)
		if clients == 1 {
			name = "locks, 1 client"
		}
		if !o.wanted(name) {
			continue
		}
		if err := lockCase(ctx, o, r, name, bench.Load{Mix: bench.Commits, Objects: clients, Clients: clients, Seed: 1}); err != nil {
			return err
		}
	}
	return nil
}

func lockCase(ctx context.Context, o options, r *figures.Beside, name string, load bench.Load) error {
	dir, err := os.MkdirTemp(o.dir, "locks-")
	if err != nil {
		return err
	}
	if r.Versions["etcd"], err = version(ctx, o.etcd, "--version"); err != nil {
		return err
	}
	server, url, err := startSQL(ctx, dir)
	if err != nil {
		return err
	}
	defer server.end()
	wire, err := openLeases(ctx, url)
	if err != nil {
		return err
	}
	defer wire.close()
	file, err := openLeases(ctx, "file:"+filepath.Join(dir, "leases.sqlite"))
	if err != nil {
		return err
	}
	defer file.close()
	etcd, endpoint, err := startEtcd(ctx, o, dir)
	if err != nil {
		return err
	}
	defer etcd.end()
	mutexes, err := openMutexes(ctx, endpoint, load.Clients)
	if err != nil {
		return err
	}
	defer mutexes.close()
	return compare(ctx, o, r, name, 1, load,
		contender{"dwk, libSQL server", server.cmd.Process.Pid, true, wire},
		contender{"etcd", etcd.cmd.Process.Pid, true, mutexes},
		contender{"dwk, file", os.Getpid(), false, file})
}

// leases takes leases as a replica does: what is ready at the same moment shares
// a transaction.
type leases struct {
	db     *libsql.DB
	group  *kv.Group
	number []int // of the operations of each client
}

func openLeases(ctx context.Context, url string) (*leases, error) {
	db, err := libsql.Open(libsql.Config{URL: url})
	if err != nil {
		return nil, err
	}
	store := kv.New(db)
	if err := store.Init(ctx); err != nil {
		db.Close() //nolint:errcheck // the other error counts
		return nil, err
	}
	return &leases{db: db, group: kv.NewGroup(store), number: make([]int, 1000)}, nil
}

func (l *leases) close() {
	l.group.Wait()
	l.db.Close() //nolint:errcheck // it is over
}

// Do implements [bench.Target]: acquire and release.
func (l *leases) Do(ctx context.Context, client int, _ bench.Op) bench.Answer {
	l.number[client]++
	at := lease.Attempt{
		Class: "Counter", ID: fmt.Sprintf("%064x", client), Holder: fmt.Sprintf("%d-%d", client, l.number[client]), Replica: "bench", Event: lease.EventRequest,
		TTL: lockTTL, DeadlineMs: time.Now().Add(time.Minute).UnixMilli(),
	}
	p := kv.NewPlan()
	n, err := at.Add(p)
	if err != nil {
		return bench.Answer{Status: err.Error()}
	}
	v, err := l.group.Commit(ctx, p)
	if err != nil {
		return bench.Answer{Status: err.Error()}
	}
	info, live, err := lease.Read(at.Class, at.ID, v.Results[n])
	if err != nil || !v.OK || !live {
		return bench.Answer{Status: fmt.Sprintf("not acquired: %v", err)}
	}
	held := lease.Held{Class: at.Class, ID: at.ID, Holder: at.Holder, Stamp: info.Stamp}
	if ok, err := held.Release(ctx, l.group); err != nil || !ok {
		return bench.Answer{Status: fmt.Sprintf("not released: %v", err)}
	}
	return bench.Answer{OK: true}
}

// mutexes locks and unlocks with etcd's recipe. Each client has a session.
type mutexes struct {
	client   *clientv3.Client
	sessions []*concurrency.Session
	list     []*concurrency.Mutex
}

func openMutexes(ctx context.Context, endpoint string, clients int) (*mutexes, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Context: ctx})
	if err != nil {
		return nil, err
	}
	m := &mutexes{client: c}
	for i := range clients {
		s, err := concurrency.NewSession(c, concurrency.WithTTL(int(lockTTL.Seconds())), concurrency.WithContext(ctx))
		if err != nil {
			m.close()
			return nil, err
		}
		m.sessions = append(m.sessions, s)
		m.list = append(m.list, concurrency.NewMutex(s, "/bench/"+strconv.Itoa(i)))
	}
	return m, nil
}

func (m *mutexes) close() {
	for _, s := range m.sessions {
		s.Close() //nolint:errcheck // it is over
	}
	m.client.Close() //nolint:errcheck // it is over
}

// Do implements [bench.Target].
func (m *mutexes) Do(ctx context.Context, client int, _ bench.Op) bench.Answer {
	if err := m.list[client].Lock(ctx); err != nil {
		return bench.Answer{Status: err.Error()}
	}
	if err := m.list[client].Unlock(ctx); err != nil {
		return bench.Answer{Status: err.Error()}
	}
	return bench.Answer{OK: true}
}

func startEtcd(ctx context.Context, o options, dir string) (*process, string, error) {
	client, err := freePort()
	if err != nil {
		return nil, "", err
	}
	peer, err := freePort()
	if err != nil {
		return nil, "", err
	}
	url, peers := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	p, err := start(dir, "etcd", nil, o.etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--log-level", "warn")
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, func() bool { return answers(ctx, url+"/health") }); err != nil {
		p.end()
		return nil, "", err
	}
	return p, url, nil
}

// serveCommand has this program be a libSQL server, in a process of its own as
// etcd is.
const serveCommand = "serve-libsql"

func startSQL(ctx context.Context, dir string) (*process, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := start(dir, "libsql", nil, program, serveCommand, address)
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, func() bool { return answers(ctx, "http://"+address+"/health") }); err != nil {
		p.end()
		return nil, "", err
	}
	return p, "http://" + address, nil
}

// serveSQL serves a database in the working directory until the process is
// killed.
func serveSQL(address string) error {
	db, err := hrana.New(hrana.Config{Path: "primary.sqlite"})
	if err != nil {
		return err
	}
	server := http.Server{Addr: address, Handler: db, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}
