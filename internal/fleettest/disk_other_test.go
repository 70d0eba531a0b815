//go:build !linux

package fleettest

import "testing"

// smallDisk mounts a small file system, where that is allowed.
func smallDisk(*testing.T) (dir string, ok bool) { return "", false }
