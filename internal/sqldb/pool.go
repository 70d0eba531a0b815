package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"strings"
	"sync"

	"github.com/tursodatabase/libsql-client-go/libsql"
	"modernc.org/sqlite"

	wire "github.com/davidwkeith/dwk/internal/libsql"
)

// A pool is the database for libraries that speak database/sql. It is opened at
// the first use.
type pool struct {
	cfg wire.Config

	mu sync.Mutex
	db *sql.DB
}

// DB implements [durable.Database].
func (d *Database) DB() *sql.DB { return d.pool.open() }

func (p *pool) open() *sql.DB {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db == nil {
		p.db = sql.OpenDB(p.connector())
	}
	return p.db
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.db == nil {
		return nil
	}
	return p.db.Close()
}

func (p *pool) connector() driver.Connector {
	if path, ok := strings.CutPrefix(p.cfg.URL, "file:"); ok {
		return fileConnector(strings.TrimPrefix(path, "//"))
	}
	var opts []libsql.Option
	if p.cfg.Token != "" {
		opts = append(opts, libsql.WithAuthToken(p.cfg.Token))
	}
	if p.cfg.Namespace != "" {
		opts = append(opts, libsql.WithRequestHeaders(map[string]string{"x-namespace": p.cfg.Namespace}))
	}
	c, err := libsql.NewConnector(p.cfg.URL, opts...)
	if err != nil { // the URL was checked
		return failing{err}
	}
	return c
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
