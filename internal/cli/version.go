package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/term"
)

// version is set by the linker in releases:
//
//	-ldflags "-X github.com/davidwkeith/dwk/internal/cli.version=v1.2.3"
var version string

// build says what this program is.
type build struct {
	Version string `json:"version"`
	// Commit and Date are those of the source, "" when it was built outside of
	// its repository; Modified says that it had changes.
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildInfo() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Date = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	return b
}

func newVersion(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Long:    "Show the version of this program, the commit it was built from, and the Go release that built it.",
		Example: "  dwk version -o json",
		Args:    arguments(),
		RunE:    e.run(func(context.Context, []string) error { return runVersion(e.term) }),
	}
}

func runVersion(t *term.Term) error {
	b := buildInfo()
	if t.JSON {
		return t.WriteJSON(b)
	}
	commit := b.Commit
	if b.Modified {
		commit += " (modified)"
	}
	tb := term.NewTable()
	tb.Row("version", b.Version)
	if b.Commit != "" {
		tb.Row("commit", commit)
		tb.Row("date", b.Date)
	}
	tb.Row("go", b.Go)
	tb.Row("platform", b.Platform)
	return t.Table(tb)
}
