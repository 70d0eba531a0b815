package mirror

import (
	"os"
	"syscall"
)

// linked reports whether an open file still has a name: whoever deletes or
// replaces a file takes it away. It is cheaper than to look the name up.
func linked(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return !ok || st.Nlink > 0, nil
}
