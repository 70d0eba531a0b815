//go:build faults

package clock

import (
	"os"
	"time"
)

// shift makes this process's clock wrong by DWK_CLOCK_SHIFT, a Go duration.
var shift = func() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("DWK_CLOCK_SHIFT"))
	return d
}()
