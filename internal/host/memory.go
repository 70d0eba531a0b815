package host

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// memoryShare is the part of the process's memory that objects' databases
	// get: others need it for bodies, commits and applications.
	memoryShare = 4
	// unknownMemory is what a process is taken to have when nothing tells.
	unknownMemory = 1 << 30
)

// objectMemory is what objects' databases may take, in bytes: what is
// configured, or a part of what the process may use.
func objectMemory(configured int64) int64 {
	if configured > 0 {
		return configured
	}
	return processMemory("/", debug.SetMemoryLimit(-1)) / memoryShare
}

// processMemory is the least of Go's limit, that of the control groups, and the
// memory of the machine, as the files below root say.
func processMemory(root string, goLimit int64) int64 {
	least := goLimit
	at := func(n int64, ok bool) {
		if ok && n > 0 {
			least = min(least, n)
		}
	}
	at(meminfo(filepath.Join(root, "proc/meminfo")))
	groups := filepath.Join(root, "sys/fs/cgroup")
	at(number(filepath.Join(groups, "memory/memory.limit_in_bytes"))) // version 1
	// Version 2: a limit of any group above counts as well.
	for group := ownGroup(filepath.Join(root, "proc/self/cgroup")); ; group = filepath.Dir(group) {
		at(number(filepath.Join(groups, group, "memory.max")))
		if group == "/" || group == "." {
			break
		}
	}
	if least == math.MaxInt64 {
		return unknownMemory
	}
	return least
}

// ownGroup is the control group of this process, of version 2.
func ownGroup(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Clean("/" + group)
		}
	}
	return "/"
}

// number reads a file of one number; no limit is a word.
func number(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

func meminfo(path string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "MemTotal:" {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
