package fleettest

import (
	"os"
	"testing"
)

// fillDisk writes until there is no room.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for size := 64 << 10; size > 0; {
		if _, err := w.Write(make([]byte, size)); err != nil {
			size /= 4
		}
	}
}
