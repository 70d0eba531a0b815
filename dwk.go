// Package dwk builds a program of one's own: a replica of a fleet and its
// operator's tools, with the applications that are given to [Main].
package dwk

import (
	_ "time/tzdata" // schedules have zones, and small systems have no zone files

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/cli"
)

// Main runs the command line on the process's arguments with the given
// applications, which the configuration can mount, and exits.
func Main(apps ...durable.App) { cli.Main(apps...) }
