package sqlcopy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) {
	firstPause = 10 * time.Microsecond
	os.Exit(m.Run())
}

// TestFixtures copies the databases of the directory that DWK_TEST_FIXTURES
// names, there and back.
func TestFixtures(t *testing.T) {
	dir := os.Getenv("DWK_TEST_FIXTURES")
	if dir == "" {
		t.Skip("DWK_TEST_FIXTURES is not set")
	}
	files, err := filepath.Glob(filepath.Join(dir, "data", "*", "*.sqlite"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no databases in %s: %v", dir, err)
	}
	for _, file := range files {
		for name, place := range libsqltest.Places {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".sqlite")+"/"+name, func(t *testing.T) {
				roundTrip(t, file, place(t).Open(t), Options{Journal: "j"})
			})
		}
	}
}

// roundTrip copies a file to a target and back, and compares all.
func roundTrip(t *testing.T, file string, dst Target, opts Options) {
	t.Helper()
	ctx := t.Context()
	up, err := Up(ctx, file, dst, opts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Up(ctx, file, dst, opts)
	if err != nil || !again.Resumed || again.Rows != up.Rows || again.Bytes != up.Bytes {
		t.Errorf("again: %+v, %v, first %+v", again, err, up)
	}
	equal(t, File(file), Database(dst), opts)
	if err := Finish(ctx, dst, opts); err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(t.TempDir(), "back#?.sqlite")
	down, err := Down(ctx, dst, back, opts)
	if err != nil {
		t.Fatal(err)
	}
	if down.Rows != up.Rows || down.Tables != up.Tables {
		t.Errorf("down %+v, up %+v", down, up)
	}
	equal(t, File(file), File(back), opts)
	equal(t, Database(dst), File(back), opts)
}

func equal(t *testing.T, a, b Side, opts Options) Diff {
	t.Helper()
	d, err := Compare(t.Context(), a, b, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !d.Equal() {
		t.Errorf("differences: %+v", d.Differences)
	}
	return d
}

// TestEverything copies what is hard to copy, in batches of several sizes.
func TestEverything(t *testing.T) {
	t.Parallel()
	file := create(t, everything...)
	for name, place := range places {
		for _, size := range []int{0, 3000} {
			if size > 0 && name != "wire" {
				continue // much work for little
			}
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				p := place(t)
				opts := Options{Journal: "j", BatchBytes: size}
				if name == "strict" {
					opts.Without = []string{"application_id"}
				}
				roundTrip(t, file, p.Open(t), opts)
			})
		}
	}
}
