// Command room is a replica that serves chat rooms.
package main

import (
	"github.com/davidwkeith/dwk"
	"github.com/davidwkeith/dwk/examples/room"
)

func main() { dwk.Main(room.App) }
