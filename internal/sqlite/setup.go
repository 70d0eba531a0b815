package sqlite

import (
	"sync"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Memory of each connection. There are thousands of small databases, and
// SQLite's own defaults are 20 pages and 40 slots, which it touches at once.
const (
	firstPages     = 4    // that a page cache is given at first
	lookasideSize  = 1200 // bytes of a slot for small allocations
	lookasideSlots = 13   // a little less than 16 KB, as memory is given in powers of two
)

// setUp configures the library, before the first connection initialises it.
var setUp = sync.OnceFunc(func() {
	lib.PatchIssue199() // page size on linux/arm64
	tls := libc.NewTLS()
	defer tls.Close()
	args := libc.Xmalloc(tls, 32)
	if args == 0 {
		return
	}
	defer libc.Xfree(tls, args)
	// These only save memory: where the library was initialised
	// by somebody else they do nothing.
	lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_PAGECACHE, libc.VaList(args, uintptr(0), int32(0), int32(firstPages)))
	lib.Xsqlite3_config(tls, lib.SQLITE_CONFIG_LOOKASIDE, libc.VaList(args, int32(lookasideSize), int32(lookasideSlots)))
})
