package mirror

import (
	"strings"

	"github.com/davidwkeith/dwk/internal/sqlite"
)

// A pragma's rights. None of the pragmas listed changes how the database file,
// the WAL or the cache is written.
type right int

const (
	// readable without a value: the setting can be seen, not changed.
	readable right = iota + 1
	// query takes an argument, which is no setting.
	query
	// saved is a setting kept in the database, and so part of the log.
	saved
	// connection is a setting of the connection, undone by Reset.
	connection
)

var pragmas = map[string]right{
	"analysis_limit":            connection,
	"application_id":            saved,
	"auto_vacuum":               readable,
	"automatic_index":           readable,
	"busy_timeout":              readable,
	"cache_size":                readable,
	"cache_spill":               readable,
	"case_sensitive_like":       connection,
	"cell_size_check":           readable,
	"collation_list":            query,
	"compile_options":           query,
	"data_version":              query,
	"database_list":             query,
	"defer_foreign_keys":        connection,
	"encoding":                  readable,
	"foreign_key_check":         query,
	"foreign_key_list":          query,
	"foreign_keys":              connection,
	"freelist_count":            query,
	"function_list":             query,
	"ignore_check_constraints":  readable,
	"incremental_vacuum":        query,
	"index_info":                query,
	"index_list":                query,
	"index_xinfo":               query,
	"integrity_check":           query,
	"journal_mode":              readable,
	"legacy_alter_table":        connection,
	"legacy_file_format":        readable,
	"locking_mode":              readable,
	"max_page_count":            readable,
	"mmap_size":                 readable,
	"module_list":               query,
	"optimize":                  query,
	"page_count":                query,
	"page_size":                 readable,
	"pragma_list":               query,
	"query_only":                readable,
	"quick_check":               query,
	"read_uncommitted":          readable,
	"recursive_triggers":        connection,
	"reverse_unordered_selects": readable,
	"schema_version":            readable,
	"secure_delete":             readable,
	"synchronous":               readable,
	"table_info":                query,
	"table_list":                query,
	"table_xinfo":               query,
	"temp_store":                readable,
	"trusted_schema":            readable,
	"user_version":              saved,
	"wal_autocheckpoint":        readable,
}

// onAuthorize is SQLite's authorizer callback.
func (c *conn) onAuthorize(a sqlite.Access) bool {
	arg, given := a.Arg(0)
	switch a.Action {
	case sqlite.Attach:
		// VACUUM attaches a temporary file, named by an empty literal, while
		// it runs; VACUUM INTO names its target in the same place.
		if !c.user && given && arg == "" {
			return true
		}
		if c.user {
			return c.deny("ATTACH")
		}
		return c.deny("VACUUM INTO")
	case sqlite.Detach:
		return c.deny("DETACH")
	case sqlite.Transaction:
		if c.locked && c.user {
			return c.deny(arg + " within a Tx")
		}
	case sqlite.Pragma:
		_, value := a.Arg(1)
		return c.authorizePragma(strings.ToLower(arg), value)
	case sqlite.CreateTempIndex, sqlite.CreateTempTable, sqlite.CreateTempTrigger, sqlite.CreateTempView:
		c.dirty = true
	case sqlite.CreateVTable:
		c.dirty = c.dirty || a.Database() == "temp"
	}
	return true
}

func (c *conn) authorizePragma(name string, value bool) bool {
	switch r := pragmas[name]; {
	case r == query, r == saved, r == readable && !value:
		return true
	case r == connection:
		c.dirty = c.dirty || value
		return true
	case r == readable:
		return c.deny("setting PRAGMA " + name)
	}
	return c.deny("PRAGMA " + name)
}

func (c *conn) deny(what string) bool {
	c.denied = what
	return false
}
