package fleettest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
)

// memory is what a process has in memory, in bytes, or 0 where systems do not tell.
func memory(r *Replica) (bytes int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	fmt.Sscan(string(b), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// Many sockets that say nothing: they are pinged, take little, and all learn of the
// end.
func TestIdleSockets(t *testing.T) {
	t.Parallel()
	f := New(t, File, "DWK_SOCKETS_PING=2s", "DWK_SOCKETS_TIMEOUT=1m", "DWK_SOCKETS_MAX=20000", "DWK_LOG_LEVEL=info")
	r := f.Start()
	n := Long(10_000, 300)
	for i := range 50 { // the objects are there, and the memory for opening sockets
		if c := dialIdle(t, r, fmt.Sprintf("room%d", i)); c != nil {
			c.Close()
		}
	}
	before := memory(r)
	var pings, ends, wrong atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		c := dialIdle(t, r, fmt.Sprintf("room%d", i%50))
		if c == nil {
			t.Fatalf("socket %d", i)
		}
		answer := c.PingHandler()
		c.SetPingHandler(func(data string) error { pings.Add(1); return answer(data) })
		wg.Go(func() {
			defer c.Close()
			for {
				if _, _, err := c.ReadMessage(); err != nil {
					ends.Add(1)
					if !websocket.IsCloseError(err, 1001) {
						wrong.Add(1)
					}
					return
				}
			}
		})
	}
	Eventually(t, "all are pinged", func() bool { return pings.Load() > int64(n) })
	if ends.Load() > 0 {
		t.Errorf("%d sockets have ended", ends.Load())
	}
	each := (memory(r) - before) / int64(n)
	t.Logf("%d idle sockets, %d bytes each", n, each)
	if each > 40<<10 && Long(1, 0) == 1 {
		t.Errorf("an idle socket takes %d bytes", each)
	}
	r.Terminate()
	wantExit(t, r, 0)
	wg.Wait()
	if wrong.Load() > 0 {
		t.Errorf("%d of %d sockets ended without their code", wrong.Load(), n)
	}
}

func dialIdle(t *testing.T, r *Replica, room string) *websocket.Conn {
	t.Helper()
	c, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(r.Public, "http")+"/lab/room/"+room+"/socket", nil)
	if err != nil {
		t.Errorf("dial: %v", err)
		return nil
	}
	return c
}
