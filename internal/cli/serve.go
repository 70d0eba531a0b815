package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/dev"
	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

// serveFlags are the flags of serve that set text settings.
var serveFlags = []struct{ flag, key, usage string }{
	{"listen", "listen", "`ADDRESS` of the public listener (default 127.0.0.1:8080)"},
	{"admin-listen", "admin.listen", "`ADDRESS` of the admin listener (default 127.0.0.1:9080)"},
	{"base-url", "base_url", "`URL` under which clients reach the fleet (default http://localhost:8080)"},
	{"replica-dir", "replica_dir", "`DIRECTORY` of the mirrors (default mirrors in data_dir)"},
	{"libsql-url", "libsql.url", "`URL` of the coordination database (default a file in data_dir)"},
	{"object-store", "object_store.url", "`URL` of the object store (default a directory in data_dir)"},
	{"public-dir", "public_dir", "`DIRECTORY` of static files (default none)"},
	{"log-format", "log.format", "`FORMAT` of the logs on stderr: auto, json or text (default auto)"},
}

func newServe(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a replica until it is told to stop",
		Long: `Run a replica of the fleet. It checks its stores, creates what is missing in a
new store set, and serves until SIGTERM or SIGINT. Then it fails readiness,
waits for drain.grace, closes its listener, finishes what it began and exits 0;
dwk drain and POST /drain on the admin listener do the same. What does not finish
within drain.timeout is named, and the status is 1. A second signal ends it at
once with status 1, and the log says what it was doing.

It exits non-zero at start, and names every store that failed and why, when it
cannot use one. Nothing is written on stdout; logs go to stderr.

Every setting comes from the configuration file, from DWK_ variables, or from
the flags below, which win.`,
		Example: `  dwk serve
  dwk serve --listen 127.0.0.1:8081 --admin-listen 127.0.0.1:9081
  dwk serve -c /etc/dwk/dwk.yaml --log-format json`,
		Args: arguments(),
	}
	for _, f := range serveFlags {
		cmd.Flags().String(f.flag, "", f.usage)
	}
	var supervised bool
	cmd.Flags().BoolVar(&supervised, "supervised", false, "end at once when stdin ends, and say on stdout where it listens")
	cmd.Flags().MarkHidden("supervised") //nolint:errcheck // it is there
	cmd.Flags().Bool("dev", false, "development: plain http for any host of base_url")
	cmd.RunE = e.run(func(ctx context.Context, _ []string) error {
		flags := map[string]any{}
		for _, f := range serveFlags {
			if value, _ := cmd.Flags().GetString(f.flag); cmd.Flags().Changed(f.flag) {
				flags[f.key] = value
			}
		}
		if dev, _ := cmd.Flags().GetBool("dev"); cmd.Flags().Changed("dev") {
			flags["dev"] = dev
		}
		return runServe(ctx, e, flags, supervised)
	})
	return cmd
}

func runServe(ctx context.Context, e *env, flags map[string]any, supervised bool) error {
	if e.timeout.set {
		return usagef("--timeout does not go with serve, which runs until it is told to stop")
	}
	cfg, err := e.load(flags)
	if err != nil {
		return err
	}
	log, err := newLogger(e.term, cfg.Log)
	if err != nil {
		return err
	}
	for _, w := range cfg.Warnings() {
		log.Warn(event.ConfigWarning, "warning", w)
	}
	tuneMemory(e.opts.Environ)
	o := host.ServeOptions{Config: cfg, Apps: e.opts.Apps, Log: log, Version: buildInfo().Version, Stopping: e.opts.last.set}
	if supervised {
		go endWith(e.opts.In) // as long as the process
		o.Started = func(public, admin string) {
			_ = e.term.WriteLine(dev.Addresses{Public: public, Admin: admin}) // else the supervisor is gone
		}
	}
	return host.Serve(ctx, o)
}

// endWith ends the process at once when the stream does: then who started it is
// gone.
func endWith(in io.Reader) {
	io.Copy(io.Discard, in) //nolint:errcheck // an error is an end
	os.Exit(exitFailed)
}

// gcPercent is how much a replica allocates between two collections, in percent
// of what is live. A replica's live heap is a few MB, as SQLite's memory is not
// part of it: at Go's 100 it would collect many times a second. What it costs is
// about 5 MB.
const gcPercent = 200

// tuneMemory sets the collector up, unless the environment does.
func tuneMemory(environ []string) {
	for _, entry := range environ {
		if strings.HasPrefix(entry, "GOGC=") {
			return
		}
	}
	debug.SetGCPercent(gcPercent)
}

// newLogger returns the log of a replica, on stderr.
func newLogger(t *term.Term, c config.Log) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	switch {
	case t.Verbose:
		level = slog.LevelDebug
	case t.Quiet:
		level = max(level, slog.LevelWarn)
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" || c.Format == "auto" && !t.ErrIsTerminal() {
		o.ReplaceAttr = inSeconds
		return slog.New(slog.NewJSONHandler(t.Err, o)), nil
	}
	return slog.New(slog.NewTextHandler(t.Err, o)), nil
}

// inSeconds makes durations numbers of seconds, as metrics have them. JSON
// would show nanoseconds.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.Float64Value(a.Value.Duration().Seconds())
	}
	return a
}
