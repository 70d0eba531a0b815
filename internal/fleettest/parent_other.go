//go:build !linux

package fleettest

import "os/exec"

// dieWithParent does nothing where systems cannot do it.
func dieWithParent(*exec.Cmd) {}
