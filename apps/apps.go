// Package apps lists the applications that are built in.
package apps

import (
	"github.com/davidwkeith/dwk/apps/lab"
	"github.com/davidwkeith/dwk/durable"
)

// All returns the built-in applications.
func All() []durable.App {
	return []durable.App{lab.App()}
}
