//go:build !faults

package clock

const shift = 0
