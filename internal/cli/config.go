package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/term"
)

func newConfig(e *env) *cobra.Command {
	return group("config", "Check and show the configuration", `Check the configuration, show what is in effect and where each value comes from,
or write a commented file to begin with. Secrets are never shown.`,
		newConfigCheck(e), newConfigShow(e), newConfigInit(e))
}

// checked is what config check writes.
type checked struct {
	OK       bool      `json:"ok"`
	File     string    `json:"file"` // "" for the embedded default, or when it could not be read
	Problems []problem `json:"problems"`
	Warnings []string  `json:"warnings"`
}

type problem struct {
	Key     string `json:"key"`
	Where   string `json:"where"`
	Message string `json:"message"`
}

func newConfigCheck(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the configuration",
		Long: `Check the configuration as serve would read it, without touching a store, and
list everything that is wrong or looks unintended. Exits 2 when something is
wrong.`,
		Example: `  dwk config check -c dwk.yaml`,
		Args:    arguments(),
		RunE:    e.run(func(context.Context, []string) error { return runConfigCheck(e) }),
	}
}

func runConfigCheck(e *env) error {
	c := checked{Problems: []problem{}, Warnings: []string{}}
	cfg, err := e.load(nil)
	if bad, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range bad.Problems {
			c.Problems = append(c.Problems, problem{p.Key, p.Where, p.Message})
		}
	} else if err != nil {
		return err
	} else {
		c.File = cfg.File()
		c.Problems = append(c.Problems, e.unknownApps(cfg)...)
		c.Warnings = append(c.Warnings, cfg.Warnings()...)
	}
	c.OK = len(c.Problems) == 0
	if err := showChecked(e.term, c); err != nil {
		return err
	}
	if !c.OK {
		return withHint(usagef("the configuration has %d problems", len(c.Problems)), "serve refuses it")
	}
	return nil
}

// unknownApps are mounts of applications that this program does not have.
func (e *env) unknownApps(cfg *config.Config) []problem {
	var names []string
	for _, a := range e.opts.Apps {
		names = append(names, a.Name)
	}
	var out []problem
	for i, m := range cfg.Mounts {
		if !slices.Contains(names, m.App) {
			out = append(out, problem{fmt.Sprintf("mounts[%d].app", i), "", fmt.Sprintf("%q is not in this program, which has: %s", m.App, strings.Join(names, ", "))})
		}
	}
	return out
}

func showChecked(t *term.Term, c checked) error {
	if t.JSON {
		return t.WriteJSON(c)
	}
	tb := term.NewTable()
	for _, p := range c.Problems {
		tb.Row(term.Cell{Text: "problem", Tone: term.Bad}, p.Key, p.Where, p.Message)
	}
	for _, w := range c.Warnings {
		tb.Row(term.Cell{Text: "warning", Tone: term.Warn}, "", "", w)
	}
	if c.OK {
		file := c.File
		if file == "" {
			file = "(embedded default)"
		}
		tb.Row(term.Cell{Text: "ok", Tone: term.Good}, file)
	}
	return t.Table(tb)
}

func newConfigShow(e *env) *cobra.Command {
	var changed bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every value and where it comes from",
		Long: `Show every value that is in effect and where it comes from: default, a file, an
environment variable. Secrets are shown as (hidden).`,
		Example: `  dwk config show --changed`,
		Args:    arguments(),
	}
	cmd.Flags().BoolVar(&changed, "changed", false, "only values that are no defaults")
	cmd.RunE = e.run(func(context.Context, []string) error { return runConfigShow(e, changed) })
	return cmd
}

func runConfigShow(e *env, changed bool) error {
	cfg, err := e.load(nil)
	if err != nil {
		return err
	}
	array, tb := e.term.Array(), term.NewTable("KEY", "VALUE", "ORIGIN")
	for _, v := range cfg.Effective() {
		if changed && v.Origin == "default" {
			continue
		}
		if e.term.JSON {
			if err := array.Add(v); err != nil {
				return err
			}
			continue
		}
		tb.Row(v.Key, term.Cell{Text: v.Value}, v.Origin)
	}
	if e.term.JSON {
		return array.Close()
	}
	return e.term.Table(tb)
}

func newConfigInit(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration file",
		Long: `Write a configuration file with every key at its default and a comment on each.
FILE is dwk.yaml unless given, and - for standard output. A file that is there is
left alone.`,
		Example: `  dwk config init
  dwk config init - | less`,
		Args: arguments("[FILE]"),
		RunE: e.run(func(_ context.Context, args []string) error {
			return runConfigInit(e.term, append(args, "dwk.yaml")[0])
		}),
	}
}

func runConfigInit(t *term.Term, path string) error {
	if path == "-" {
		_, err := t.Out.Write(config.Reference())
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return err
		}
		return fmt.Errorf("%s is there already, and was left alone", path)
	}
	err := writeFile(path, func(w io.Writer) error {
		_, err := w.Write(config.Reference())
		return err
	})
	if err == nil {
		t.Notef("wrote %s", path)
	}
	return err
}
