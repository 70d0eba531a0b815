package fleettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/bucket/s3test"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// TestMoveSpeed measures the move of bodies beside rclone, to one S3 server, and
// that of objects. It decides nothing.
func TestMoveSpeed(t *testing.T) {
	rclone, err := exec.LookPath("rclone")
	if os.Getenv("DWK_TEST_LONG") == "" || err != nil {
		t.Skip("it measures; set DWK_TEST_LONG=1 and install rclone")
	}
	server := s3test.Start(t, "things")
	data := filepath.Join(t.TempDir(), "data")
	size := int64(0)
	body := func(key string, n int) {
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(i*7 + i>>9 + len(key))
		}
		migratetest.WriteBody(t, data, "FILES", key, text, "application/octet-stream", nil)
		size += int64(n)
	}
	for i := range 300 {
		body(fmt.Sprintf("small/%d", i), 20<<10)
	}
	for i := range 40 {
		body(fmt.Sprintf("middle/%d", i), 3<<20)
	}
	body("large", 80<<20)
	var ours, full, theirs []time.Duration
	move := func(round int, verify string) time.Duration {
		f := New(t, File)
		text := fmt.Sprintf("%s\nbuckets: [{name: FILES, url: %q}]\nmounts: []\ncrons: []\nobject_store: {url: %q, access_key: %q, secret_key: %q, region: %q, path_style: \"true\"}\n",
			textOf(os.ReadFile(f.config())), server.URL("things")+fmt.Sprintf("/%s%d", verify, round), server.URL("things")+fmt.Sprintf("/store%s%d", verify, round), server.Access, server.Secret, s3test.Region)
		if err := os.WriteFile(f.config(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f.mustMove("to-central", "--data-dir", data, "--yes", "--only", "r2", "--verify", verify)
		return time.Since(began)
	}
	for round := range 2 {
		ours = append(ours, move(round, "counts"))
		cmd := exec.Command(rclone, "copy", filepath.Join(data, "r2", "FILES"), fmt.Sprintf("x:things/rclone%d", round), "--exclude", "*.r2meta")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, "RCLONE_CONFIG_X_TYPE=s3", "RCLONE_CONFIG_X_PROVIDER=Other", "RCLONE_CONFIG_X_ENDPOINT=http://"+server.Endpoint,
			"RCLONE_CONFIG_X_ACCESS_KEY_ID="+server.Access, "RCLONE_CONFIG_X_SECRET_ACCESS_KEY="+server.Secret, "RCLONE_CONFIG_X_REGION="+s3test.Region,
			"RCLONE_CONFIG_X_FORCE_PATH_STYLE=true", "RCLONE_CONFIG="+filepath.Join(t.TempDir(), "none"))
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		theirs = append(theirs, time.Since(began))
		full = append(full, move(round, "full"))
	}
	rate := func(d []time.Duration) float64 { return float64(size) / (1 << 20) / slices.Min(d).Seconds() }
	t.Logf("bodies, %d MiB: %.1f MiB/s with counts, %.1f MiB/s with full, rclone %.1f MiB/s; ratios %.2f and %.2f",
		size>>20, rate(ours), rate(full), rate(theirs), rate(ours)/rate(theirs), rate(full)/rate(theirs))
	t.Log(ours, full, theirs)

	for _, kind := range []Kind{File, Wire} {
		f := New(t, kind)
		f.moveConfig()
		old := filepath.Join(f.Dir, "old")
		const n = 1000
		migratetest.Make(t, old, migratetest.Options{Objects: n})
		began := time.Now()
		f.mustMove("to-central", "--data-dir", old, "--yes", "--only", "do")
		took := time.Since(began)
		began = time.Now()
		f.mustMove("to-local", "--data-dir", filepath.Join(f.Dir, "back"), "--yes", "--only", "do")
		t.Logf("%s: %.0f objects/s there, %.0f back", kind, n/took.Seconds(), n/time.Since(began).Seconds())
	}
}

func textOf(text []byte, err error) string {
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(text))
}
