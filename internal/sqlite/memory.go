package sqlite

import lib "modernc.org/sqlite/lib"

// Memory returns the bytes that the connection takes: its page cache, the
// schema and the compiled statements. It is not exact.
func (c *Conn) Memory() int64 {
	var sum int64
	for _, what := range []int32{lib.SQLITE_DBSTATUS_CACHE_USED, lib.SQLITE_DBSTATUS_SCHEMA_USED, lib.SQLITE_DBSTATUS_STMT_USED} {
		if lib.Xsqlite3_db_status(c.tls, c.db, what, c.out, c.out+4, 0) == lib.SQLITE_OK {
			sum += int64(*(*int32)(pointer(c.out)))
		}
	}
	return sum
}
