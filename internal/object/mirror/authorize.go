package mirror

import (
	"strings"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// A pragma's rights. None of the pragmas listed changes how the database file,
// the WAL or the cache is written.
type right int

const (
	// readable without a value: the setting can be seen, not changed.
	readable right = iota + 1
	// query takes an argument, which is no setting.
	query
	// stored is a setting kept in the database, and so part of the log.
	stored
	// connection is a setting of the connection, undone by Reset.
	connection
)

var pragmas = map[string]right{
	"analysis_limit":            connection,
	"application_id":            stored,
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
	"user_version":              stored,
	"wal_autocheckpoint":        readable,
}

// onAuthorize is SQLite's authorizer callback.
func onAuthorize(_ *libc.TLS, handle uintptr, action int32, arg1, arg2, database, _ uintptr) int32 {
	c := connOf(handle)
	switch action {
	case sqlite3.SQLITE_ATTACH:
		// VACUUM attaches a temporary file, named by an empty literal, while
		// it runs; VACUUM INTO names its target in the same place.
		if !c.user && arg1 != 0 && libc.GoString(arg1) == "" {
			return sqlite3.SQLITE_OK
		}
		if c.user {
			return c.deny("ATTACH")
		}
		return c.deny("VACUUM INTO")
	case sqlite3.SQLITE_DETACH:
		return c.deny("DETACH")
	case sqlite3.SQLITE_TRANSACTION:
		if c.locked && c.user {
			return c.deny(libc.GoString(arg1) + " within a Tx")
		}
	case sqlite3.SQLITE_PRAGMA:
		return c.authorizePragma(strings.ToLower(libc.GoString(arg1)), arg2 != 0)
	case sqlite3.SQLITE_CREATE_TEMP_INDEX, sqlite3.SQLITE_CREATE_TEMP_TABLE,
		sqlite3.SQLITE_CREATE_TEMP_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_VIEW:
		c.dirty = true
	case sqlite3.SQLITE_CREATE_VTABLE:
		c.dirty = c.dirty || libc.GoString(database) == "temp"
	}
	return sqlite3.SQLITE_OK
}

func (c *conn) authorizePragma(name string, value bool) int32 {
	switch r := pragmas[name]; {
	case r == query, r == stored, r == readable && !value:
		return sqlite3.SQLITE_OK
	case r == connection:
		c.dirty = c.dirty || value
		return sqlite3.SQLITE_OK
	case r == readable:
		return c.deny("setting PRAGMA " + name)
	}
	return c.deny("PRAGMA " + name)
}

func (c *conn) deny(what string) int32 {
	c.denied = what
	return sqlite3.SQLITE_DENY
}
