package fleettest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many tests run at a time unless a flag says so. They wait most
// of the time.
const parallel = "6"

// Main builds the program, runs the tests of a package that uses fleets, and
// exits.
func Main(m *testing.M) {
	flag.Set("test.parallel", parallel) //nolint:errcheck // it is there, and a flag of the command line comes later
	code := 1
	if _, err := binary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/davidwkeith/dwk/internal/fleettest.serveStarts")); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if built != "" {
		os.RemoveAll(built) //nolint:errcheck // in the system's temporary directory
	}
	os.Exit(code)
}

// built is the directory that binary made, if it did.
var built string

// binary returns the path of the program, which it builds once. DWK_TEST_BINARY
// names one that is ready, built with the tag "faults".
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("DWK_TEST_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	var err error
	if built, err = os.MkdirTemp("", "dwk-fleettest-"); err != nil {
		return "", err
	}
	path := filepath.Join(built, "dwk")
	cmd := exec.Command("go", "build", "-tags", "faults", "-o", path, "github.com/davidwkeith/dwk/cmd/dwk")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

// program returns a command of the program that has not been started.
func (f *Fleet) program(env []string, args ...string) *exec.Cmd {
	f.t.Helper()
	path, err := f.Program, error(nil)
	if path == "" {
		path, err = binary()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	if f.Descriptors > 0 {
		limit := fmt.Sprintf(`ulimit -n %d && exec "$@"`, f.Descriptors)
		cmd = exec.Command("sh", append([]string{"-c", limit, "sh", path}, args...)...)
	}
	cmd.Dir = f.Dir
	cmd.Env = f.environ(env)
	dieWithParent(cmd)
	return cmd
}

// start starts a command. A process that is to die with its parent dies with
// the thread that started it, so all are started by one thread that stays.
func start(cmd *exec.Cmd) error {
	starter.Do(func() { go serveStarts() })
	done := make(chan error)
	starts <- func() { done <- cmd.Start() }
	return <-done
}

var (
	starter sync.Once
	starts  = make(chan func())
)

// serveStarts is the thread that stays, until the process ends.
func serveStarts() {
	runtime.LockOSThread()
	for f := range starts {
		f()
	}
}
