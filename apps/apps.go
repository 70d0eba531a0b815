// Package apps lists the applications that are built in.
package apps

import (
	"github.com/davidwkeith/dwk/apps/lab"
	"github.com/davidwkeith/dwk/apps/remotestorage"
	"github.com/davidwkeith/dwk/durable"
)

// All returns the built-in applications. The configuration says which of them
// are mounted; by default that is the lab.
func All() []durable.App {
	return []durable.App{lab.App(), remotestorage.App()}
}
