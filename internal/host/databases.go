package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/probe"
	"github.com/davidwkeith/dwk/internal/sqldb"
)

// OpenDatabase opens a SQL binding of a configuration, without touching the
// network. It must be closed.
func OpenDatabase(cfg *config.Config, name string) (*sqldb.Database, error) {
	return openDatabase(cfg, name, nil)
}

// An Observer returns, for the name of a store, what is called after each round
// trip to it.
type Observer func(store string) func(took time.Duration, err error)

// of returns nil when nobody observes.
func (o Observer) of(store string) func(took time.Duration, err error) {
	if o == nil {
		return nil
	}
	return o(store)
}

func openDatabase(cfg *config.Config, name string, o Observer) (*sqldb.Database, error) {
	d, ok := cfg.DatabaseOrDefault(name)
	if !ok {
		return nil, fmt.Errorf("there is no SQL database %q in the configuration", name)
	}
	return sqldb.Open(name, libsql.Config{
		URL: d.URL, Token: d.Token.Reveal(), Namespace: d.Namespace,
		CA: cfg.LibSQL.CA, Timeout: cfg.LibSQL.Timeout, MaxConns: cfg.LibSQL.MaxConns,
		Observe: o.of(probe.SQL + ":" + name),
	})
}

// Databases are the opened SQL bindings of a configuration, by name.
type Databases map[string]*sqldb.Database

// OpenDatabases opens all SQL bindings; o may be nil. They must be closed.
func OpenDatabases(cfg *config.Config, o Observer) (Databases, error) {
	all := Databases{}
	for _, c := range cfg.Databases {
		d, err := openDatabase(cfg, c.Name, o)
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		all[c.Name] = d
	}
	return all, nil
}

// Close closes all of them.
func (all Databases) Close() error {
	var errs []error
	for _, d := range all {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Targets returns what is probed of them, in the order of the configuration.
func (all Databases) Targets(cfg *config.Config) []probe.Database {
	var out []probe.Database
	for _, c := range cfg.Databases {
		if d := all[c.Name]; d != nil {
			out = append(out, probe.Database{Name: c.Name, DB: d.LibSQL()})
		}
	}
	return out
}
