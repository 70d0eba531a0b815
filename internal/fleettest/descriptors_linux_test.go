package fleettest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A replica whose descriptors clients have used up refuses what it cannot run,
// loses nothing that it has answered, harms no other replica, and goes on by
// itself when they are gone.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	Each(t, func(t *testing.T, kind Kind) {
		f := New(t, kind)
		b := f.Start()
		f.Descriptors = 128
		a := f.Start()
		// What this client sends goes over the connection that it has.
		kept := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
		defer kept.CloseIdleConnections()
		const counters = 12
		var added [counters]int64
		statuses := map[int]int{}
		path := func(i int, op string) string { return fmt.Sprintf("counter/c%d/add?op=%s", i, op) }
		// sure adds through the other replica, however often it takes.
		sure := func(i int, op string) {
			Eventually(t, "the other replica adds", func() bool { return b.Post(path(i, op), "").Status == http.StatusOK })
			added[i]++
		}
		ops := 0
		add := func(i int) int {
			ops++
			op := fmt.Sprintf("op%d", ops)
			resp, err := kept.Post(a.Public+"/lab/"+path(i, op), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			switch ans := (Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}); {
			case ans.Status == http.StatusOK:
				added[i]++
			case ans.Unknown():
				sure(i, op)
			case !ans.Refused():
				t.Errorf("counter %d: %v", i, ans)
			}
			statuses[resp.StatusCode]++
			return resp.StatusCode
		}
		for i := range counters / 2 {
			add(i)
		}
		for round := range 2 {
			var idle []net.Conn
			clear(statuses)
			const full = "accept4: too many open files"
			before := strings.Count(a.Log(), full)
			Eventually(t, "it can take no more", func() bool {
				conn, err := net.Dial("tcp", strings.TrimPrefix(a.Public, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				idle = append(idle, conn)
				return strings.Count(a.Log(), full) > before
			})
			for i := range 3 * counters {
				add(i % counters)
			}
			t.Logf("round %d: %d connections, %d files, answers %v", round, len(idle), descriptors(a), statuses)
			for i := range counters {
				sure(i, fmt.Sprintf("other%d", round))
			}
			if a.Exited() {
				t.Fatal("it has ended")
			}
			for _, conn := range idle {
				conn.Close()
			}
			for i := range counters {
				Eventually(t, "it goes on", func() bool { return add(i) == http.StatusOK })
			}
		}
		for i := range counters {
			var c struct{ Value int64 }
			var ans Answer
			Eventually(t, "the other replica reads", func() bool { ans = b.Get(fmt.Sprintf("counter/c%d", i)); return ans.Status == http.StatusOK })
			if ans.Decode(t, &c); c.Value != added[i] {
				t.Errorf("counter %d is %d, %d were added", i, c.Value, added[i])
			}
		}
		a.WaitStatus(http.StatusOK)
	})
}
