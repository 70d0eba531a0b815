// Package doctest runs the shell blocks of the project's documents.
//
// A block is tagged in its first line: "```sh run" is executed, "```sh norun:
// why" is not, and a block without a tag is an error. The blocks of a document
// run one after the other in one shell, in a fresh copy of the sources, with
// dwk on the PATH; what they left running is ended with the document.
package doctest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../.."

func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	return append(docs, more...)
}

type block struct {
	line int
	text string
}

// parse returns the blocks of a document that are to be run. Blocks in other
// languages are not commands.
func parse(doc string) (run []block, problems []string) {
	var b *block
	fenced, keep := false, false
	for i, line := range strings.Split(doc, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && !fenced:
			fenced = true
			lang, tag, _ := strings.Cut(fence, " ")
			if lang != "sh" && lang != "" {
				continue
			}
			why, norun := strings.CutPrefix(tag, "norun:")
			switch {
			case lang == "" || tag != "run" && !norun:
				problems = append(problems, fmt.Sprintf("line %d: a block without a language, or a shell block without a tag run or norun: why", i+1))
			case norun && strings.TrimSpace(why) == "":
				problems = append(problems, fmt.Sprintf("line %d: norun without a reason", i+1))
			case tag == "run":
				b, keep = &block{line: i + 2}, true
			}
		case isFence:
			if keep {
				run = append(run, *b)
			}
			fenced, keep = false, false
		case keep:
			b.text += line + "\n"
		}
	}
	if fenced {
		problems = append(problems, "the last block has no end")
	}
	return run, problems
}

func TestParse(t *testing.T) {
	run, problems := parse("```sh run\na\n```\n```sh norun: why\nb\n```\n```go\nc\n```\n```sh\nd\n```\n```\ne\n```\n```sh norun:\n```\n")
	if len(run) != 1 || run[0].text != "a\n" || run[0].line != 2 || len(problems) != 3 {
		t.Fatalf("%+v %q", run, problems)
	}
}

func TestDocuments(t *testing.T) {
	var bin string
	for _, path := range documents(t) {
		name, _ := filepath.Rel(root, path)
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			blocks, problems := parse(string(text))
			for _, p := range problems {
				t.Errorf("%s: %s", name, p)
			}
			if len(blocks) == 0 {
				return
			}
			if testing.Short() {
				t.Skip("runs real processes")
			}
			dir := copySources(t)
			if bin == "" {
				bin = build(t)
			}
			runBlocks(t, name, blocks, dir, bin)
		})
	}
}

func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "doctest")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "dwk"), "./cmd/dwk")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// copySources copies what git tracks or would track.
func copySources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the sources: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // deleted and not yet committed
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runBlocks(t *testing.T, name string, blocks []block, dir, bin string) {
	t.Helper()
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		fmt.Fprintf(&script, "echo '== %s:%d'\n%s\n", name, b.line, b.text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The group also holds what the blocks left in the background.
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	_ = kill()
	if err != nil && !strings.Contains(err.Error(), "WaitDelay") {
		t.Errorf("%v\n%s", err, &out)
	}
}
