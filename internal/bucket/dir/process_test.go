package dir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// The test binary is its own child: childJob says what to do, childDir where
// and childID who it is.
const (
	childJob = "DWK_TEST_BUCKET_JOB"
	childDir = "DWK_TEST_BUCKET_DIR"
	childID  = "DWK_TEST_BUCKET_ID"
)

var errEOF = io.EOF

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func runChild(job string) int {
	b, err := Open(os.Getenv(childDir))
	if err == nil {
		id := os.Getenv(childID)
		switch job {
		case "race":
			err = childRace(b, id)
		case "mix":
			err = childMix(b, id)
		case "put":
			err = childPut(b, id)
		case "one":
			_, err = b.Put(context.Background(), "d/k", strings.NewReader("new body"), durable.PutOptions{ContentType: "text/new"})
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

const raceKeys = 20

func childRace(b *Bucket, id string) error {
	for i := range raceKeys {
		_, err := b.Put(context.Background(), fmt.Sprintf("race/%02d", i), strings.NewReader(id), durable.PutOptions{IfAbsent: true})
		if err == nil {
			fmt.Println("won", i)
		} else if !errors.Is(err, durable.ErrPrecondition) {
			return err
		}
	}
	return nil
}

func childMix(b *Bucket, id string) error {
	for i := range 40 {
		if err := putChecked(b, "mix/k", id, i); err != nil {
			return err
		}
		if i%5 == 4 {
			if err := b.Delete(context.Background(), "mix/k"); err != nil {
				return err
			}
		}
		for range 5 {
			if err := checkBody(b, "mix/k"); err != nil && !errors.Is(err, durable.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

func childPut(b *Bucket, id string) error {
	for i := 0; ; i++ {
		for _, key := range []string{"kill/same", fmt.Sprintf("kill/%s/%d", id, i)} {
			if err := putChecked(b, key, id, i); err != nil {
				return err
			}
			fmt.Println(key)
		}
	}
}

func putChecked(b *Bucket, key, id string, i int) error {
	text := fmt.Sprintf("%s-%04d,", id, i)
	_, err := b.Put(context.Background(), key, strings.NewReader(strings.Repeat(text, 5000+i%3*20_000)), durable.PutOptions{Metadata: map[string]string{"text": text}})
	return err
}

// checkBody fails when a body is not what its metadata says.
func checkBody(b *Bucket, key string) error {
	body, info, err := b.Get(context.Background(), key, durable.GetOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	part := info.Metadata["text"]
	if part == "" || info.Size != int64(len(text)) || strings.Repeat(part, len(text)/len(part)) != string(text) {
		return fmt.Errorf("%s: %d bytes of %.10q with the facts of %q, %d bytes", key, len(text), text, part, info.Size)
	}
	return nil
}

func child(ctx context.Context, t *testing.T, job, dir, id string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childJob+"="+job, childDir+"="+dir, childID+"="+id)...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// together runs a job in several processes and returns what they print.
func together(t *testing.T, job, dir string) []string {
	t.Helper()
	const processes = 4
	out, errs := make([]strings.Builder, processes), make([]error, processes)
	cmds := make([]*exec.Cmd, processes)
	for i := range cmds {
		cmds[i] = child(t.Context(), t, job, dir, fmt.Sprint(i))
		cmds[i].Stdout, cmds[i].Stderr = &out[i], &out[i]
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for i, cmd := range cmds {
		if errs[i] = cmd.Wait(); errs[i] != nil {
			t.Errorf("process %d: %v\n%s", i, errs[i], out[i].String())
		}
		for line := range strings.Lines(out[i].String()) {
			lines = append(lines, strings.TrimSpace(line)+" "+fmt.Sprint(i))
		}
	}
	return lines
}

func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	t.Run("one winner", func(t *testing.T) {
		lines := together(t, "race", dir)
		slices.Sort(lines)
		winner := map[int]int{}
		for _, line := range lines {
			var key, who int
			if _, err := fmt.Sscanf(line, "won %d %d", &key, &who); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if other, twice := winner[key]; twice {
				t.Errorf("%d and %d won %d", other, who, key)
			}
			winner[key] = who
			wantBody(t, b, fmt.Sprintf("race/%02d", key), fmt.Sprint(who))
		}
		if len(winner) != raceKeys {
			t.Errorf("%d keys were won", len(winner))
		}
	})
	t.Run("never mixed", func(t *testing.T) {
		together(t, "mix", dir)
		for _, path := range files(t, dir) {
			if strings.HasSuffix(path, tempSuffix) {
				t.Errorf("left %s", path)
			}
		}
	})
}

// TestKilled kills a process that puts, wherever it is then.
func TestKilled(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	dir := t.TempDir()
	b := open(t, dir)
	for round := range rounds {
		ctx, kill := context.WithCancel(t.Context())
		cmd := child(ctx, t, "put", dir, fmt.Sprint(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if acked = append(acked, lines.Text()); len(acked) > 2+round {
				kill()
			}
		}
		err = cmd.Wait()
		kill()
		if err == nil || len(acked) < 2 || !strings.HasPrefix(acked[0], "kill/") {
			t.Fatalf("the process ended by itself: %v, %q", err, acked)
		}
		keys := listed(t, b)
		for _, key := range acked {
			if !slices.Contains(keys, key) {
				t.Errorf("%s is lost", key)
			}
		}
		for _, key := range keys {
			if err := checkBody(b, key); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		}
	}
	age(t, dir)
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, key := range listed(t, b) {
		if err := checkBody(b, key); err != nil {
			t.Error(err)
		}
	}
	for _, path := range files(t, dir) {
		if strings.HasSuffix(path, tempSuffix) {
			t.Errorf("left %s", path)
		}
	}
}
