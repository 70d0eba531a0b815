// Command dwk runs durable objects on a fleet of replicas.
package main

import (
	"github.com/davidwkeith/dwk"
	"github.com/davidwkeith/dwk/apps"
)

func main() { dwk.Main(apps.All()...) }
