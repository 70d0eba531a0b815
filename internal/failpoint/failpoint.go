//go:build !faults

// Package failpoint marks the places where a test build can make the program
// die, stop or wait. In ordinary builds a point does nothing.
package failpoint

// Hit passes the point with this name.
func Hit(string) {}
