// Package clock is the one place where the program reads its machine's time.
// Nothing that decides ownership or visibility is computed from it: those
// decisions use the primary's clock inside the deciding statement.
package clock

import "time"

// Now returns the machine's time, with a monotonic reading.
func Now() time.Time { return time.Now().Add(shift) }

// Deadline returns when d will have passed, for the deadlines of connections.
// The system compares those with its own time, wherever a test has shifted
// this program's.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// Since returns the monotonic time that has passed since t.
func Since(t time.Time) time.Duration { return Now().Sub(t) }

// UnixMilli returns the machine's time in epoch milliseconds.
func UnixMilli() int64 { return Now().UnixMilli() }
