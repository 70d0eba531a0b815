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
	"sync"
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
	jobs            int
	plan            bool
	collect         string
	dir             string // of what runs
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
	flag.IntVar(&s.jobs, "jobs", 1, "seeds at a time")
	flag.StringVar(&s.collect, "collect", "", "run nothing: write the summary of the records in -out to this `file`")
	flag.BoolVar(&s.plan, "plan", false, "show what the seed decides, and run nothing")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains(chaos.Focuses, s.focus) || s.collect == "" && (s.seeds == "") == (s.seed == 0) {
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
	if s.collect != "" {
		return collect(s.out, s.collect)
	}
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
	if s.dir, err = os.MkdirTemp("", "dwk-robustness-"); err != nil {
		return 3, err
	}
	if s.program == "" {
		s.program = filepath.Join(s.dir, "dwk")
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", s.program, "github.com/davidwkeith/dwk/cmd/dwk")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 3, fmt.Errorf("build the program: %w\n%s", err, out)
		}
	}
	if s.program, err = filepath.Abs(s.program); err != nil {
		return 3, err
	}
	t := tally{settings: s, commit: head(ctx), begun: time.Now()}
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range max(1, s.jobs) {
		wg.Go(func() {
			for seed := range next {
				t.one(ctx, seed)
			}
		})
	}
	for _, seed := range seeds {
		if ctx.Err() != nil || s.duration > 0 && time.Since(t.begun) > s.duration || t.failed() {
			break
		}
		if !t.there(seed) {
			next <- seed
		}
	}
	close(next)
	wg.Wait()
	fmt.Fprintf(os.Stderr, "%d held, %d violated, %d unclear, in %v\n", t.held, t.violated, t.unclear, time.Since(t.begun).Round(time.Second))
	if t.violated+t.unclear == 0 {
		os.RemoveAll(s.dir) //nolint:errcheck // a temporary folder
	}
	switch {
	case t.violated > 0:
		code = 1
	case t.unclear > 0:
		code = 3
	}
	return code, t.err
}

// A tally is what came of the seeds so far.
type tally struct {
	settings
	commit string
	begun  time.Time

	mu                      sync.Mutex
	held, violated, unclear int
	err                     error
}

func (t *tally) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err != nil
}

func (t *tally) path(seed uint64) string {
	return filepath.Join(t.out, fmt.Sprintf("seed-%d.json", seed))
}

// there reports whether a seed of a list has a record.
func (t *tally) there(seed uint64) bool {
	if t.out == "" || t.seeds == "" {
		return false
	}
	_, err := os.Stat(t.path(seed))
	return err == nil
}

// one runs a seed and leaves its record. One that was interrupted leaves none.
func (t *tally) one(ctx context.Context, seed uint64) {
	rec, err := t.run(ctx, seed)
	if ctx.Err() != nil && rec.Verdict != figures.Violated {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	line, bad := json.Marshal(rec)
	if err = errors.Join(err, bad); err == nil {
		fmt.Println(string(line))
		if t.out != "" {
			path := t.path(seed)
			err = errors.Join(os.MkdirAll(t.out, 0o755), os.WriteFile(path+".new", append(line, '\n'), 0o644), os.Rename(path+".new", path))
		}
	}
	t.err = errors.Join(t.err, err)
	switch rec.Verdict {
	case figures.Held:
		t.held++
	case figures.Violated:
		t.violated++
	default:
		t.unclear++
	}
}

// collect writes the summary of the records in a folder to a file.
func collect(from, to string) (int, error) {
	records, err := figures.ReadRecords(from)
	if err != nil {
		return 3, err
	}
	if len(records) == 0 {
		return 2, fmt.Errorf("%s has no records", from)
	}
	b, err := json.MarshalIndent(figures.Summarize(records), "", " ")
	if err != nil {
		return 3, err
	}
	return 0, errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, append(b, '\n'), 0o644))
}

func (s settings) draw() chaos.DrawOptions {
	return chaos.DrawOptions{Focus: s.focus, TTL: s.ttl, Steps: s.steps, Calls: s.calls}
}

// run runs a seed, whose log is kept when it did not hold.
func (t *tally) run(ctx context.Context, seed uint64) (rec figures.Robustness, err error) {
	dir := filepath.Join(t.dir, fmt.Sprintf("seed-%d", seed))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return rec, err
	}
	path := dir + ".log"
	log, err := os.Create(path)
	if err != nil {
		return rec, err
	}
	defer log.Close() //nolint:errcheck // for people
	var out io.Writer = log
	if t.seeds == "" {
		out = io.MultiWriter(log, os.Stderr)
	}
	rec = chaos.Run(ctx, chaos.Draw(seed, t.draw()), chaos.Options{Program: t.program, Limit: t.limit, Dir: dir, Commit: t.commit, Out: out})
	fmt.Fprintf(os.Stderr, "seed %d: %s in %.1f s, %d operations, %d violations %s\n", seed, rec.Verdict, float64(rec.Elapsed)/1000, rec.Total(), len(rec.Violations), rec.Trouble)
	if rec.Verdict == figures.Held {
		return rec, os.Remove(path)
	}
	fmt.Fprintf(os.Stderr, "its log is %s; replay it with:\n  %s\n", path, t.replay(seed))
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
