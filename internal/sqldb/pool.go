package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tursodatabase/libsql-client-go/libsql"
	"modernc.org/sqlite"

	wire "github.com/davidwkeith/dwk/internal/libsql"
)

// maxIdle is how long a connection without work is kept. A server forgets its
// side of one after 10 s.
const maxIdle = 5 * time.Second

// A pool is the database for libraries that speak database/sql. It is opened at
// the first use.
type pool struct {
	name string
	cfg  wire.Config

	mu    sync.Mutex
	db    *sql.DB
	route *route // of a server
}

// DB implements [durable.Database].
func (d *Database) DB() *sql.DB { return d.pool.open() }

func (p *pool) open() *sql.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db != nil {
		return p.db
	}
	cfg := p.cfg.WithDefaults()
	inner, remote := p.connector(cfg)
	p.db = sql.OpenDB(&connector{Connector: inner, pool: p, remote: remote})
	p.db.SetMaxOpenConns(cfg.MaxConns)
	p.db.SetMaxIdleConns(cfg.MaxConns)
	p.db.SetConnMaxIdleTime(maxIdle)
	return p.db
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db == nil {
		return nil
	}
	err := p.db.Close()
	if p.route != nil {
		p.route.close()
	}
	return err
}

func (p *pool) connector(cfg wire.Config) (_ driver.Connector, remote bool) {
	if path, ok := strings.CutPrefix(cfg.URL, "file:"); ok {
		return fileConnector(strings.TrimPrefix(path, "//")), false
	}
	c, err := p.wireConnector(cfg)
	if err != nil { // the configuration was checked, so this says something that the check does not know
		return failing{fmt.Errorf("SQL database %s: not usable by database/sql: %w", p.name, err)}, true
	}
	return c, true
}

func (p *pool) wireConnector(cfg wire.Config) (driver.Connector, error) {
	route, err := newRoute(cfg)
	if err != nil {
		return nil, err
	}
	p.route = route
	opts := []libsql.Option{libsql.WithRequestHeaders(route.headers())}
	if cfg.Token != "" {
		opts = append(opts, libsql.WithAuthToken(cfg.Token))
	}
	return libsql.NewConnector(cfg.URL, opts...)
}

// fileConnector opens connections to a file as the rest of the program has
// them: durable, with foreign keys, and patient with other writers.
func fileConnector(path string) driver.Connector {
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_txlock=immediate&_time_format=sqlite" +
		"&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=journal_size_limit(16777216)"
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return failing{err}
	}
	return c
}

// failing is the connector of a database that cannot be opened.
type failing struct{ err error }

func (f failing) Connect(context.Context) (driver.Conn, error) { return nil, f.err }
func (f failing) Driver() driver.Driver                        { return nil }
