package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/apps"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/term"
)

// quick ends a replica without grace.
func quick(t *testing.T) []string {
	return []string{"DWK_DATA_DIR=" + filepath.Join(t.TempDir(), "data"), "DWK_DRAIN_GRACE=0s", "DWK_LISTEN=127.0.0.1:0", "DWK_ADMIN_LISTEN=127.0.0.1:0"}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var stdout strings.Builder
	sink := newLineSink()
	code := make(chan int)
	go func() {
		code <- Run(ctx, Options{Args: []string{"serve", "--log-format", "json"}, Out: &stdout, Err: sink, Environ: quick(t), Apps: apps.All()})
	}()
	var started struct{ Public, Admin, Version string }
	if err := json.Unmarshal([]byte(sink.next(t, `"serve.started"`)), &started); err != nil || started.Version == "" {
		t.Fatal(err, started)
	}
	res, err := http.Get("http://" + started.Admin + "/readyz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Error(res, err)
	}
	io.Copy(io.Discard, res.Body)
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	cancel(interrupted{syscall.SIGTERM})
	if c := <-code; c != 0 || stdout.Len() > 0 {
		t.Errorf("exit %d, stdout %q", c, stdout.String())
	}
}

func TestServeRefusesStores(t *testing.T) {
	f := &fixture{t: t, environ: append(quick(t), "DWK_LIBSQL_URL=http://127.0.0.1:1")}
	r := f.run("serve")
	if r.code != exitUnreachable || !strings.Contains(r.err, "http://127.0.0.1:1") || r.out != "" {
		t.Error(r)
	}
}

// Every flag of serve is a setting of the same type.
func TestServeFlags(t *testing.T) {
	keys := map[string]string{}
	for _, k := range config.Keys() {
		keys[k.Key] = k.Type
	}
	for _, f := range serveFlags {
		if keys[f.key] != "text" {
			t.Errorf("--%s sets %s, a %s", f.flag, f.key, keys[f.key])
		}
	}
	// A wrong value of each is found, as that of a flag.
	f := &fixture{t: t, environ: quick(t)}
	for flag, key := range map[string]string{"listen": "listen", "admin-listen": "admin.listen", "base-url": "base_url", "libsql-url": "libsql.url",
		"object-store": "object_store.url", "log-format": "log.format"} {
		f.fails(exitUsage, key+" (flag)", "serve", "--"+flag, "nonsense://")
	}
	r := f.run("serve", "--base-url", "http://example.com", "--dev=false")
	f.failed(r, exitUsage, "base_url (flag)")
}

func TestLogger(t *testing.T) {
	for _, tt := range []struct {
		c              config.Log
		quiet, verbose bool
		want           string
	}{
		{config.Log{Level: "info", Format: "auto"}, false, false, "json: info warn"},
		{config.Log{Level: "info", Format: "text"}, false, false, "text: info warn"},
		{config.Log{Level: "info", Format: "json"}, false, true, "json: debug info warn"},
		{config.Log{Level: "info", Format: "json"}, true, false, "json: warn"},
		{config.Log{Level: "error", Format: "json"}, true, false, "json:"},
	} {
		var out strings.Builder
		tm := term.New(nil, io.Discard, &out, os.Getenv)
		tm.Quiet, tm.Verbose = tt.quiet, tt.verbose
		log, err := newLogger(tm, tt.c)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		got := "text:"
		if tt.c.Format != "text" {
			got = "json:"
		}
		for line := range strings.Lines(out.String()) {
			if (line[0] == '{') != strings.HasPrefix(got, "json") {
				t.Errorf("%+v: %s", tt.c, line)
			}
			for _, level := range []string{"debug", "info", "warn"} {
				if strings.Contains(line, "msg="+level) || strings.Contains(line, `"msg":"`+level) {
					got += " " + level
				}
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// JSON shows durations in seconds, as metrics do.
func TestLoggedDurations(t *testing.T) {
	var out strings.Builder
	log, err := newLogger(term.New(nil, io.Discard, &out, os.Getenv), config.Log{Level: "info", Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", "took", 1500*time.Microsecond, "n", 7)
	if got := out.String(); !strings.Contains(got, `"took":0.0015,"n":7`) {
		t.Error(got)
	}
}

// start runs the program as a process of its own.
func start(t *testing.T, environ []string, args ...string) (*exec.Cmd, *lineSink) {
	t.Helper()
	sink := newLineSink()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "DWK_TEST_MAIN=1"), environ...)
	cmd.Stderr = sink
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, sink
}

func TestProcessEndsBySignal(t *testing.T) {
	cmd, sink := start(t, quick(t), "serve")
	sink.next(t, `"serve.started"`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	cmd, sink := start(t, append(quick(t), "DWK_DRAIN_GRACE=10m", "DWK_DRAIN_TIMEOUT=20m"), "serve")
	sink.next(t, `"serve.started"`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	sink.next(t, `"serve.stopping"`)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = cmd.Process.Signal(syscall.SIGINT)
		case <-done:
			if code := cmd.ProcessState.ExitCode(); code != exitFailed {
				t.Errorf("exit %d", code)
			}
			return
		}
	}
}
