package fleettest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has a process end with the test that started it, also when
// that is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
