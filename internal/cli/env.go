package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/term"
)

// defaultTimeout bounds commands that neither stream, wait nor move data.
const defaultTimeout = 30 * time.Second

// env is what all commands share: the terminal and the global flags.
type env struct {
	opts       Options
	term       *term.Term
	configFile string
	timeout    optionalDuration
	ran        bool // a command began: what fails from here on is not the usage
}

// globals adds the global flags.
func (e *env) globals(f *pflag.FlagSet) {
	f.StringVarP(&e.configFile, "config", "c", "", "configuration `FILE` (default $DWK_CONFIG, ./dwk.yaml, /etc/dwk/dwk.yaml, else all defaults)")
	f.VarP(format{e.term}, "output", "o", "`FORMAT` of the answer: table or json")
	f.Var(&e.timeout, "timeout", "bound of the whole command; 0 is none (default 30s; none for commands that stream, wait or move data)")
	f.BoolVarP(&e.term.Quiet, "quiet", "q", false, "less on stderr")
	f.BoolVarP(&e.term.Verbose, "verbose", "v", false, "debug logs on stderr, and the whole chain of an error")
	f.BoolFunc("no-color", "no colour, as with NO_COLOR set", func(string) error { e.term.NoColor(); return nil })
}

// run is the RunE of a command.
func (e *env) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if e.term.Quiet && e.term.Verbose {
			return usagef("--quiet and --verbose do not go together")
		}
		e.ran = true
		return f(cmd.Context(), args)
	}
}

// bound returns the context of a command that should answer soon.
func (e *env) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if !e.timeout.set {
		return context.WithTimeout(ctx, defaultTimeout)
	}
	return e.boundIfAsked(ctx)
}

// boundIfAsked returns the context of a command that may take its time.
func (e *env) boundIfAsked(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.timeout.d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, e.timeout.d)
}

// load reads the configuration; flags are values by key that win over it.
func (e *env) load(flags map[string]any) (*config.Config, error) {
	cfg, err := config.Load(config.Options{File: e.configFile, Environ: e.opts.Environ, Flags: flags})
	if err != nil {
		return nil, err
	}
	e.term.Detailf("configuration: %s", fileName(cfg))
	return cfg, nil
}

func fileName(cfg *config.Config) string {
	if cfg.File() == "" {
		return "(embedded default)"
	}
	return cfg.File()
}

// open opens the stores for a command that looks at them or changes what is
// there.
func (e *env) open(ctx context.Context) (*host.Stores, error) {
	cfg, err := e.load(nil)
	if err != nil {
		return nil, err
	}
	s, err := host.OpenExisting(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e.term.Detailf("coordination store: %s", s.DB)
	return s, nil
}

// confirm asks before something is changed, unless yes.
func (e *env) confirm(ctx context.Context, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	return e.term.Confirm(ctx, format, args...)
}

// yesFlag adds the flag that stands for the answer.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask; needed where there is no terminal to ask on")
}

// format is the value of --output.
type format struct{ t *term.Term }

func (f format) String() string {
	if f.t != nil && f.t.JSON {
		return "json"
	}
	return "table"
}

func (f format) Set(s string) error {
	if s != "table" && s != "json" {
		return fmt.Errorf("must be table or json")
	}
	f.t.JSON = s == "json"
	return nil
}

func (f format) Type() string { return "string" }

// optionalDuration is a duration that may be left out. It is never negative.
type optionalDuration struct {
	d   time.Duration
	set bool
}

func (o *optionalDuration) String() string {
	if o == nil || !o.set {
		return ""
	}
	return o.d.String()
}

func (o *optionalDuration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("must be a duration such as 30s or 5m")
	}
	o.d, o.set = d, true
	return nil
}

func (o *optionalDuration) Type() string { return "duration" }

// user is who runs the command, for what is kept about it.
func (e *env) user() string {
	for _, name := range []string{"USER", "LOGNAME"} {
		if u := getenv(e.opts.Environ)(name); u != "" {
			return term.Cut(u, 100)
		}
	}
	return "an operator"
}
