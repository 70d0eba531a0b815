//go:build !linux

package chaos

import "errors"

func mountSmall(string) error { return errors.New("only on Linux") }

func unmount(string) {}
