// Command robustness runs seeds of package chaos: one, or a list of them, of each
// of which it leaves a record.
//
// It exits with 0 when all that it ran held, 1 when a promise was broken, 2 when
// it was used wrongly, and 3 when no promise was seen broken and the verdict on
// a seed is open.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/davidwkeith/dwk/internal/fleettest/chaos"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

type settings struct {
	seed            uint64
	seeds, out      string
	program, focus  string
	limit, duration time.Duration
	ttl             time.Duration
	steps, calls    int
	plan            bool
}

func main() {
	var s settings
	flag.Uint64Var(&s.seed, "seed", 0, "run this seed")
	flag.StringVar(&s.seeds, "seeds", "", "run the seeds in this `file`, one a line")
	flag.StringVar(&s.out, "out", "", "`folder` of the records; seeds that have one are passed over")
	flag.StringVar(&s.program, "program", "", "dwk, built with -tags faults; built from the tree unless given")
	flag.StringVar(&s.focus, "focus", chaos.All, "what is stressed: "+strings.Join(chaos.Focuses, ", "))
	flag.DurationVar(&s.limit, "limit", chaos.DefaultLimit, "bound of one seed")
	flag.DurationVar(&s.duration, "duration", 0, "begin no seed after this time; 0 is no bound")
	flag.DurationVar(&s.ttl, "ttl", 0, "lifetime of leases instead of the drawn one")
	flag.IntVar(&s.steps, "steps", 0, "number of faults instead of the drawn one")
	flag.IntVar(&s.calls, "calls", 0, "least number of calls")
	flag.BoolVar(&s.plan, "plan", false, "show what the seed decides, and run nothing")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains(chaos.Focuses, s.focus) || (s.seeds == "") == (s.seed == 0) {
		fmt.Fprintln(os.Stderr, "robustness: -seed N or -seeds FILE, and a focus that there is")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "robustness:", err)
		code = max(code, 3)
	}
	os.Exit(code)
}

func run(ctx context.Context, s settings) (code int, err error) {
	seeds := []uint64{s.seed}
	if s.seeds != "" {
		if seeds, err = readSeeds(s.seeds); err != nil {
			return 2, err
		}
	}
	if s.plan {
		for _, seed := range seeds {
			fmt.Println(chaos.Draw(seed, s.draw()))
		}
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "dwk-robustness-")
	if err != nil {
		return 3, err
	}
	keep := false
	defer func() {
		if !keep {
			os.RemoveAll(dir) //nolint:errcheck // a temporary folder
		}
	}()
	if s.program == "" {
		s.program = filepath.Join(dir, "dwk")
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", s.program, "github.com/davidwkeith/dwk/cmd/dwk")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 3, fmt.Errorf("build the program: %w\n%s", err, out)
		}
	}
	if s.program, err = filepath.Abs(s.program); err != nil {
		return 3, err
	}
	commit := head(ctx)
	begun, held, violated, unclear := time.Now(), 0, 0, 0
	for _, seed := range seeds {
		if ctx.Err() != nil || s.duration > 0 && time.Since(begun) > s.duration {
			break
		}
		record := filepath.Join(s.out, fmt.Sprintf("seed-%d.json", seed))
		if s.out != "" && s.seeds != "" {
			if _, err := os.Stat(record); err == nil {
				continue
			}
		}
		rec, err := one(ctx, s, seed, commit, dir)
		if err != nil {
			return 3, err
		}
		if ctx.Err() != nil {
			break // it was interrupted: no verdict
		}
		line, err := json.Marshal(rec)
		if err != nil {
			return 3, err
		}
		fmt.Println(string(line))
		if s.out != "" {
			if err := errors.Join(os.MkdirAll(s.out, 0o755), os.WriteFile(record+".new", append(line, '\n'), 0o644), os.Rename(record+".new", record)); err != nil {
				return 3, err
			}
		}
		switch rec.Verdict {
		case figures.Held:
			held++
		case figures.Violated:
			violated, keep = violated+1, true
		default:
			unclear, keep = unclear+1, true
		}
	}
	fmt.Fprintf(os.Stderr, "%d held, %d violated, %d unclear, in %v\n", held, violated, unclear, time.Since(begun).Round(time.Second))
	switch {
	case violated > 0:
		code = 1
	case unclear > 0:
		code = 3
	}
	return code, nil
}

func (s settings) draw() chaos.DrawOptions {
	return chaos.DrawOptions{Focus: s.focus, TTL: s.ttl, Steps: s.steps, Calls: s.calls}
}

// one runs a seed, whose log is shown when it did not hold.
func one(ctx context.Context, s settings, seed uint64, commit, dir string) (rec figures.Robustness, err error) {
	dir = filepath.Join(dir, fmt.Sprintf("seed-%d", seed))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return rec, err
	}
	path := dir + ".log"
	log, err := os.Create(path)
	if err != nil {
		return rec, err
	}
	defer log.Close()
	var out io.Writer = log
	if s.seeds == "" {
		out = io.MultiWriter(log, os.Stderr)
	}
	plan := chaos.Draw(seed, s.draw())
	rec = chaos.Run(ctx, plan, chaos.Options{Program: s.program, Limit: s.limit, Dir: dir, Commit: commit, Out: out})
	fmt.Fprintf(os.Stderr, "seed %d: %s in %.1f s, %d operations, %d violations %s\n", seed, rec.Verdict, float64(rec.Elapsed)/1000, rec.Total(), len(rec.Violations), rec.Trouble)
	if rec.Verdict == figures.Held {
		return rec, os.Remove(path)
	}
	fmt.Fprintf(os.Stderr, "its log is %s; replay it with:\n  %s\n", path, s.replay(seed))
	return rec, nil
}

// replay is the command that runs a seed again.
func (s settings) replay(seed uint64) string {
	cmd := fmt.Sprintf("go run ./internal/fleettest/chaos/robustness -seed %d", seed)
	if s.focus != chaos.All {
		cmd += " -focus " + s.focus
	}
	if s.ttl != 0 {
		cmd += fmt.Sprintf(" -ttl %v", s.ttl)
	}
	if s.steps != 0 {
		cmd += fmt.Sprintf(" -steps %d", s.steps)
	}
	if s.calls != 0 {
		cmd += fmt.Sprintf(" -calls %d", s.calls)
	}
	return cmd
}

func readSeeds(path string) (seeds []uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}

// head is the commit of the tree, "" where git does not tell.
func head(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
