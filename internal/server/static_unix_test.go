//go:build unix

package server

import (
	"path/filepath"
	"syscall"
	"testing"
)

// To open a pipe would be to wait for somebody to write into it.
func TestStaticPipe(t *testing.T) {
	dir := site(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPublic(t, PublicConfig{Dir: dir})
	if w := send(p, "GET", "/pipe"); w.Code != 404 {
		t.Errorf("%d", w.Code)
	}
}
