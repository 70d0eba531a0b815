package chaos

import "syscall"

func mountSmall(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m") }

func unmount(dir string) { syscall.Unmount(dir, syscall.MNT_DETACH) } //nolint:errcheck // it is gone with the machine
