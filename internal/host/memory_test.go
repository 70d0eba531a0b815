package host

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestProcessMemory(t *testing.T) {
	const meminfo = "MemTotal:        8000000 kB\nMemFree:  5 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		limit int64
		want  int64
	}{
		{"nothing is known", nil, math.MaxInt64, unknownMemory},
		{"Go's limit", nil, 5 << 30, 5 << 30},
		{"the machine", map[string]string{"proc/meminfo": meminfo}, math.MaxInt64, 8000000 << 10},
		{"Go's limit on a machine", map[string]string{"proc/meminfo": meminfo}, 1 << 20, 1 << 20},
		{"version 1", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n"}, math.MaxInt64, 1000000},
		{"version 1 without a limit", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, math.MaxInt64, 8000000 << 10},
		{"version 2 in a container", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "2000000\n"}, math.MaxInt64, 2000000},
		{"version 2, own group", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "3000\n", "sys/fs/cgroup/a/memory.max": "max\n"}, math.MaxInt64, 3000},
		{"version 2, a group above", map[string]string{"proc/self/cgroup": "1:x:/c\n0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4000\n"}, math.MaxInt64, 4000},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := processMemory(root, c.limit); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
	if n := objectMemory(0); n <= 0 {
		t.Errorf("here it is %d", n)
	}
	if n := objectMemory(77); n != 77 {
		t.Errorf("set to 77 it is %d", n)
	}
}
