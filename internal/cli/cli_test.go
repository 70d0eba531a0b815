package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/probe"
	"github.com/davidwkeith/dwk/internal/term"
)

// Every command explains itself.
func TestHelpOfEveryCommand(t *testing.T) {
	e := &env{term: term.New(nil, io.Discard, io.Discard, os.Getenv)}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || len(c.Long) <= len(c.Short) || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short %q, long %q", c.CommandPath(), c.Short, c.Long)
		}
		if c.Args == nil || c.RunE == nil {
			t.Errorf("%s: takes any arguments, or none run", c.CommandPath())
		}
		if !c.HasSubCommands() && (c.Example == "" || !strings.Contains(c.Example, c.CommandPath())) {
			t.Errorf("%s: its example is %q", c.CommandPath(), c.Example)
		}
		for line := range strings.SplitSeq(c.Long+"\n"+c.Example, "\n") {
			if len([]rune(line)) > 200 {
				t.Errorf("%s: a line of %d", c.CommandPath(), len(line))
			}
		}
		r := execute(t.Context(), Options{Args: append(strings.Fields(c.CommandPath())[1:], "--help"), Environ: []string{}})
		if r.code != 0 || r.err != "" || !strings.Contains(r.out, "Usage:\n  "+c.CommandPath()) {
			t.Errorf("%s --help: exit %d, %q, %q", c.CommandPath(), r.code, r.err, r.out)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(e))
}

// The written contract names every command and every flag.
func TestReferenceIsComplete(t *testing.T) {
	b, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if path := strings.TrimPrefix(c.CommandPath(), "dwk"); !strings.Contains(text, strings.TrimSpace(path)) {
			t.Errorf("docs/cli.md does not mention %s", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, "--"+f.Name) {
				t.Errorf("docs/cli.md does not mention %s --%s", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&env{term: term.New(nil, io.Discard, io.Discard, os.Getenv)}))
}

func TestRootHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		r := execute(t.Context(), Options{Args: args, Environ: []string{}})
		if r.code != 0 || r.err != "" {
			t.Errorf("%v: exit %d, %q", args, r.code, r.err)
		}
		at := 0
		for _, want := range []string{"Run a fleet:", "serve", "Look into the stores and change them:", "kv", "lease", "Set-up and help:", "completion", "version"} {
			i := strings.Index(r.out[at:], want)
			if i < 0 {
				t.Errorf("%v: no %q in its place", args, want)
				break
			}
			at += i
		}
		if strings.Contains(r.out, "Additional Commands") {
			t.Errorf("%v: a command has no group", args)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	f := newFixture(t)
	for _, tt := range []struct{ args, words string }{
		{"prob", `unknown command "prob"|did you mean probe?|dwk --help`},
		{"frobnicate", `unknown command "frobnicate"|see: dwk --help`},
		{"kv", "a command is missing: delete, dump, get, list, set, stats, sweep"},
		{"kv lst", `dwk kv: unknown command "lst"|did you mean list`},
		{"kv gte --limit 3", `dwk kv: unknown command "gte"`},
		{"--bogus", "unknown flag: --bogus|see: dwk --help"},
		{"kv list --bogus", "unknown flag: --bogus|see: dwk kv list --help"},
		{"kv list extra", `unexpected argument "extra"`},
		{"kv list --limit -1", "--limit"},
		{"kv list --limit x", "--limit"},
		{"kv list --prefix a", `--prefix: key is not a JSON array|'["a",1]'`},
		{"kv list -o yaml", "table or json"},
		{"kv list --timeout -3s", "--timeout|duration such as 30s"},
		{"kv list -q -v", "--quiet and --verbose do not go together"},
		{"kv get", "KEY is missing"},
		{"kv get a", `KEY: key is not a JSON array`},
		{"kv get [1e999]", "KEY"},
		{"kv set [1]", "VALUE is missing"},
		{"kv set [1] hello --yes", "VALUE is not JSON"},
		{"kv set [1] 1", "no terminal to ask on|--yes"},
		{"kv set [1] 1 --yes --if-absent --if-version 3", "--if-absent and --if-version do not go together"},
		{"kv set [1] 1 --yes --if-version x", "--if-version"},
		{"kv set [1] 1 --yes --if-version 0", "--if-version"},
		{"kv set [1] 1 --yes --ttl 1us", "--ttl must be at least a millisecond"},
		{`kv set ["dwk_lease","A","0a"] {} --yes`, "would block its object for ever: add --ttl"},
		{"kv sweep --batch 0", "--batch"},
		{"kv sweep --max 0", "--max"},
		{"lease inspect", "CLASS is missing"},
		{"lease inspect A", "ID is missing; --name NAME stands for it"},
		{"lease inspect A XY", `"XY" is not lower-case hex`},
		{"lease inspect A 0a --name b", "an ID and --name do not go together"},
		{"lease inspect A 0a --watch --interval 0s", "--interval"},
		{"lease release A 0a --version nonsense", "--version"},
		{"probe --only nonsense", `nothing is called "nonsense"|coordination, object-log, mode, clock`},
		{"probe --repeat 0", "--repeat"},
		{"probe --repeat 100000", "100000"},
		{"serve --timeout 3s", "--timeout"},
		{"serve extra", "unexpected argument"},
		{"serve --listen nonsense", "listen (flag)|dwk config check"},
		{"kv list -c /does/not/exist.yaml", "/does/not/exist.yaml"},
	} {
		args := strings.Fields(tt.args)
		f.fails(exitUsage, tt.words, args...)
		r := f.run(append(args, "-o", "json")...)
		if strings.Contains(tt.args, "-o yaml") {
			continue
		}
		var e struct{ Error, Kind, Command string }
		if err := json.Unmarshal([]byte(r.err), &e); err != nil || e.Kind != "usage" || e.Error == "" || !strings.HasPrefix(e.Command, "dwk") || r.out != "" {
			t.Errorf("dwk %s -o json: %v in %q, %q", tt.args, err, r.err, r.out)
		}
	}
}

func TestExitCodes(t *testing.T) {
	signalled, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGINT})
	unreachable := &libsql.Error{Outcome: libsql.Refused, Kind: libsql.KindUnreachable, Addr: "http://db", Err: io.EOF}
	busy := &libsql.Error{Outcome: libsql.Refused, Kind: libsql.KindBusy, Err: io.EOF}
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), io.EOF, exitFailed},
		{t.Context(), busy, exitFailed},
		{t.Context(), term.ErrDeclined, exitFailed},
		{t.Context(), fmt.Errorf("x: %w", mode.ErrRefused), exitFailed},
		{t.Context(), term.ErrNotAsked, exitUsage},
		{t.Context(), fmt.Errorf("x: %w", usagef("y")), exitUsage},
		{t.Context(), fmt.Errorf("x: %w", &config.Error{Problems: []config.Problem{{}}}), exitUsage},
		{t.Context(), notFoundf("x"), exitNotFound},
		{t.Context(), fmt.Errorf("x: %w", host.ErrNoStore), exitNotFound},
		{t.Context(), partlyError{"removed 3", unreachable}, exitPartly},
		{t.Context(), fmt.Errorf("x: %w", unreachable), exitUnreachable},
		{t.Context(), &libsql.Error{Kind: libsql.KindTimeout, Err: context.DeadlineExceeded}, exitUnreachable},
		{t.Context(), probe.Summarize([]probe.Result{{Err: unreachable}, {OK: true}}), exitUnreachable},
		{t.Context(), probe.Summarize([]probe.Result{{Err: unreachable}, {Err: io.EOF}}), exitFailed},
		{signalled, fmt.Errorf("x: %w", context.Canceled), exitInterrupted},
		{signalled, &libsql.Error{Kind: libsql.KindTimeout, Err: context.Canceled}, exitInterrupted},
		{signalled, context.Cause(signalled), exitInterrupted},
		{signalled, partlyError{"removed 3", context.Canceled}, exitInterrupted},
		{signalled, io.EOF, exitFailed},
		{t.Context(), context.Canceled, exitFailed},
	} {
		if got := exitCode(tt.ctx, tt.err); got != tt.want {
			t.Errorf("%v: exit %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a":                             "a",
		"a\nb":                          "a; b",
		"2 problems:\n  a: x\n  b: y\n": "2 problems: a: x; b: y",
		"a\n\nb":                        "a; b",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func TestVerboseAddsTheChain(t *testing.T) {
	f := newFixture(t)
	f.environ = append(f.environ, "DWK_LIBSQL_URL=http://127.0.0.1:1")
	f.fails(exitUnreachable, "http://127.0.0.1:1|dwk probe", "kv", "list")
	r := f.run("kv", "list", "-v")
	if r.code != exitUnreachable || !strings.Contains(r.err, "*libsql.Error") || !strings.Contains(r.err, "outcome refused") || !strings.Contains(r.err, "configuration: ") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	r = f.run("kv", "list", "-v", "-o", "json")
	_, line, _ := strings.Cut(r.err, "\n")
	var e struct {
		Kind  string
		Exit  int
		Chain []string
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil || e.Kind != "unreachable" || e.Exit != 5 || len(e.Chain) < 2 {
		t.Errorf("%v in %s", err, r.err)
	}
}

func TestEmptyStoreSet(t *testing.T) {
	dir := t.TempDir()
	f := &fixture{t: t, environ: []string{"DWK_DATA_DIR=" + dir}}
	for _, args := range []string{"kv list", "kv get [1]", "kv dump", "kv stats", "kv sweep", "kv set [1] 1 --yes", "kv delete [1] --yes", "lease list", "lease inspect A 0a", "lease release A 0a --yes"} {
		f.fails(exitNotFound, "no replica has ever run on it|dwk config show", strings.Fields(args)...)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a command that looks made %v", left)
	}
}

// Nothing that is printed shows a secret, whatever fails.
func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "s3cr3t-value"
	f := &fixture{t: t, environ: []string{
		"DWK_DATA_DIR=" + t.TempDir(), "DWK_LIBSQL_URL=http://127.0.0.1:1", "DWK_LIBSQL_TOKEN=" + secret, "DWK_ADMIN_TOKEN=" + secret,
		"DWK_OBJECT_STORE_ACCESS_KEY=" + secret, "DWK_OBJECT_STORE_SECRET_KEY=" + secret, "DWK_SECRET_A=" + secret,
		"DWK_LISTEN=127.0.0.1:0", "DWK_ADMIN_LISTEN=127.0.0.1:0",
	}}
	for _, args := range []string{"config show", "config check", "probe", "kv list", "kv set [1] 1 --yes", "lease list", "serve"} {
		for _, more := range [][]string{{"-v"}, {"-o", "json", "-v"}} {
			r := f.run(append(strings.Fields(args), more...)...)
			if strings.Contains(r.out+r.err, secret) {
				t.Errorf("dwk %s shows a secret: %s%s", args, r.out, r.err)
			}
		}
	}
	if out := f.ok("config", "show"); !strings.Contains(out, "(hidden)") {
		t.Errorf("the settings are not shown: %s", out)
	}
}

func TestSignals(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	signals := make(chan os.Signal)
	codes := make(chan int, 1)
	go watch(signals, cancel, func(code int) { codes <- code })
	signals <- syscall.SIGTERM
	signals <- syscall.SIGTERM // of the same moment: one signal
	<-ctx.Done()
	if s, ok := errors.AsType[interrupted](context.Cause(ctx)); !ok || s.Signal != syscall.SIGTERM {
		t.Error(context.Cause(ctx))
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case signals <- syscall.SIGINT:
		case code := <-codes:
			if code != exitFailed {
				t.Errorf("exit %d", code)
			}
			return
		case <-tick.C:
		}
	}
}

func TestVersion(t *testing.T) {
	f := &fixture{t: t, environ: []string{}}
	var v struct{ Version, Go, Platform string }
	f.json(&v, "version")
	if v.Version == "" || !strings.HasPrefix(v.Go, "go") || v.Platform == "" {
		t.Errorf("%+v", v)
	}
	if out := f.ok("version"); !strings.HasPrefix(out, "version   "+v.Version) {
		t.Error(out)
	}
	if out := f.ok("--version"); out != "dwk "+v.Version+"\n" {
		t.Error(out)
	}
}

func TestCompletion(t *testing.T) {
	f := &fixture{t: t, environ: []string{}}
	if out := f.ok("completion", "bash"); !strings.Contains(out, "__dwk") {
		t.Error(out)
	}
	for args, want := range map[string]string{"lease inspect ": "Counter", "lease list --class ": "Counter", "probe --only ": "object-log", "k": "kv"} {
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		if out := f.ok(words...); !strings.Contains(out, want) {
			t.Errorf("%s completes to %s", args, out)
		}
	}
}
