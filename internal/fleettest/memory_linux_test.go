package fleettest

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// peakOf watches the most memory that a process has at once, in bytes, until
// done. What the kernel tells at its end would count that of the test, which
// started it.
func peakOf(pid int, done <-chan struct{}) (peak int64) {
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(text), "VmHWM:"); err == nil && ok {
			var kib int64
			if _, err := fmt.Sscanf(rest, "%d", &kib); err == nil {
				peak = max(peak, kib<<10)
			}
		}
		select {
		case <-done:
			return peak
		case <-time.After(5 * time.Millisecond):
		}
	}
}
