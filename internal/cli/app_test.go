package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/davidwkeith/dwk/durable"
)

// tool is an application whose command does what its flags say.
func tool() durable.App {
	setup := func(flags *flag.FlagSet) durable.CommandFunc {
		kind := flags.String("fail", "", "fail with a `KIND` of error")
		return func(ctx context.Context, env durable.Env, c durable.Call) error {
			kinds := map[string]error{"usage": durable.ErrInvalid, "missing": durable.ErrNotFound, "store": durable.ErrUnavailable, "other": errors.New("canary")}
			if err := kinds[*kind]; err != nil {
				return fmt.Errorf("asked to: %w", err)
			}
			if err := c.Confirm(ctx, "Go on?"); err != nil {
				return err
			}
			in, err := io.ReadAll(c.In)
			if err != nil {
				return err
			}
			c.Note("noted")
			return c.Show(durable.Answer{Rows: [][]string{{"args", strings.Join(c.Args, " ")}, {"in", string(in)}}, JSON: map[string]any{"args": c.Args, "base": env.BaseURL().Path}})
		}
	}
	return durable.App{
		Name: "tool", Summary: "A tool of tests",
		Commands: []durable.Command{{Name: "do", Args: []string{"WHAT", "[MORE]"}, Short: "Do it", Setup: setup}},
	}
}

func TestApp(t *testing.T) {
	f := newFixture(t)
	config := filepath.Join(t.TempDir(), "dwk.yaml")
	writeTo(t, config, "crons: []\nmounts: [{path: /tool, app: tool}]\n")
	run := func(environ []string, args ...string) result {
		var out, err strings.Builder
		code := Run(t.Context(), Options{Args: append([]string{"app", "tool"}, args...), In: strings.NewReader("input"), Out: &out, Err: &err,
			Environ: environ, Apps: []durable.App{tool()}})
		return result{code, out.String(), err.String()}
	}
	environ := append([]string{"DWK_CONFIG=" + config}, f.environ...)
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"do", "this", "that", "--yes"}, 0, "args  this that\nin    input\n", "noted\n"},
		{[]string{"do", "this", "-y", "-o", "json", "-q"}, 0, "{\n  \"args\": [\n    \"this\"\n  ],\n  \"base\": \"/tool\"\n}\n", ""},
		{[]string{"do", "this"}, exitUsage, "", "pass --yes"},
		{[]string{"do"}, exitUsage, "", "WHAT is missing"},
		{[]string{"do", "a", "b", "c"}, exitUsage, "", `unexpected argument "c"`},
		{[]string{"undo"}, exitUsage, "", `unknown command "undo"`},
		{nil, exitUsage, "", "a command is missing: do"},
		{[]string{"do", "a", "--fail", "usage"}, exitUsage, "", "asked to"},
		{[]string{"do", "a", "--fail", "missing"}, exitNotFound, "", "asked to"},
		{[]string{"do", "a", "--fail", "store"}, exitUnreachable, "", "asked to"},
		{[]string{"do", "a", "--fail", "other"}, exitFailed, "", "dwk app tool do: asked to: canary"},
		{[]string{"do", "a", "--never"}, exitUsage, "", "unknown flag"},
		{[]string{"do", "--help"}, 0, "--fail KIND", ""},
	} {
		r := run(environ, c.args...)
		if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) {
			t.Errorf("%v: exit %d, %q, %q", c.args, r.code, r.out, r.err)
		}
	}
	writeTo(t, config, "crons: []\nmounts: []\n")
	if r := run(environ, "do", "a"); r.code != exitUsage || !strings.Contains(r.err, "does not mount the application tool") {
		t.Errorf("not mounted: %d %s", r.code, r.err)
	}
	writeTo(t, config, "crons: []\nmounts: [{path: /tool, app: tool}]\n")
	if r := run([]string{"DWK_CONFIG=" + config, "DWK_DATA_DIR=" + filepath.Join(t.TempDir(), "none")}, "do", "a"); r.code != exitNotFound {
		t.Errorf("no stores: %d %s", r.code, r.err)
	}
}

func writeTo(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
