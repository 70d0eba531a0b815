package fleettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The balancers that are installed take the examples of their configuration, and
// bring all sockets of a room to one replica, and to another when it is gone.
func TestRoomsBehindTheExampleBalancers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		program, file, listen string
		check, run            func(file, dir string) []string
	}{
		{"haproxy", "haproxy.cfg", "bind :8000",
			func(file, _ string) []string { return []string{"-c", "-f", file} },
			func(file, _ string) []string { return []string{"-db", "-f", file} }},
		{"nginx", "nginx.conf", "listen 8000",
			func(file, dir string) []string { return []string{"-t", "-p", dir, "-c", file, "-g", nginxGlobals(dir)} },
			func(file, dir string) []string {
				return []string{"-p", dir, "-c", file, "-g", nginxGlobals(dir) + "daemon off; master_process off;"}
			}},
	} {
		t.Run(c.program, func(t *testing.T) {
			program, err := exec.LookPath(c.program)
			if err != nil {
				t.Skip("it is not installed")
			}
			example, err := filepath.Abs("../../configs/" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(program, c.check(example, t.TempDir())...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if Long(1, 0) == 0 {
				return
			}
			f := New(t, File)
			// The example checks an admin port for all; here each has its own.
			replicas := []*Replica{f.Start("DWK_ADMIN_HEALTH_ON_PUBLIC=true"), f.Start("DWK_ADMIN_HEALTH_ON_PUBLIC=true")}
			b, err := os.ReadFile(example)
			if err != nil {
				t.Fatal(err)
			}
			at := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1)[0])
			text := strings.ReplaceAll(string(b), c.listen, strings.Fields(c.listen)[0]+" "+at)
			text = strings.NewReplacer("maxconn 40000", "maxconn 1000", "worker_connections 20000", "worker_connections 500").Replace(text)
			text = strings.ReplaceAll(text, "check port 9080 inter 1s fall 2", "check inter 200ms fall 1")
			for i, r := range replicas {
				text = strings.ReplaceAll(text, fmt.Sprintf("10.0.0.%d:8080", i+1), strings.TrimPrefix(r.Public, "http://"))
			}
			file := filepath.Join(f.Dir, c.file)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, c.run(file, f.Dir)...)
			cmd.Stderr = os.Stderr
			if err := start(cmd); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				cmd.Process.Kill() //nolint:errcheck // it may be gone
				cmd.Wait()         //nolint:errcheck // it was killed
			})
			Eventually(t, "the balancer answers", func() bool {
				return send(t.Context(), "GET", "http://"+at+"/lab/whoami", "").Status == 200
			})
			p := newParty(t, "http://"+at, "hall")
			guests := p.join(10)
			first := guests[0].on()
			if n := guestsOn(guests, first); n != len(guests) {
				t.Errorf("%d of %d sockets are on one replica", n, len(guests))
			}
			p.chat(guests, guests, 200, 10*time.Millisecond, func() {
				for _, r := range replicas {
					if r.ID == first {
						r.Kill()
					}
				}
			})
		})
	}
}

// nginxGlobals are for an nginx that nobody has installed for this machine.
func nginxGlobals(dir string) string {
	return fmt.Sprintf("error_log stderr; pid %s/nginx.pid;", dir)
}
