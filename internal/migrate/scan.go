package migrate

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// Names in a data directory.
const (
	lockName  = ".dwk-writer.lock"
	queueName = "queue.sqlite"
	cacheDir  = "kv"
	// halfName is a directory that a move to a local directory keeps until it is
	// complete.
	halfName = ".dwk-migrate"

	databaseSuffix = ".sqlite"
	sidecarSuffix  = ".r2meta"
	tempSuffix     = ".tmp"
)

var (
	bindingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	className   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)
)

// A found is something in a data directory: an item that moves, or something
// that does not, with the reason.
type found struct {
	kind Kind
	// item is its name in the journal and the proof, and path its file. name is
	// the binding or class, and key the key or id.
	item, path, name, key string
	print                 string
	size                  int64
	// outcome is empty for what moves.
	outcome Outcome
	reason  string
}

// A scanner walks a data directory. Memory does not grow with the files of a
// directory, but for eight bytes a name.
type scanner struct {
	cfg   *Config
	visit func(found) error
	seed  maphash.Seed
	names map[uint64]bool
}

// readPage is how many names of a directory are read at a time.
const readPage = 512

// scan visits everything in the data directory of the kinds that move. Things
// that cannot be read are visited with a reason; the error is that of visit, or
// of ctx.
func scan(ctx context.Context, cfg *Config, visit func(found) error) error {
	s := &scanner{cfg: cfg, visit: visit, seed: maphash.MakeSeed(), names: map[uint64]bool{}}
	if cfg.has(SQL) {
		if err := s.databases(ctx); err != nil {
			return err
		}
	}
	if cfg.has(Objects) {
		if err := s.folders(ctx, Objects, className, "a class is a letter and up to 63 letters, digits and underscores", s.objects); err != nil {
			return err
		}
	}
	if cfg.has(Buckets) {
		if err := s.folders(ctx, Buckets, bindingName, "a binding is of letters, digits and underscores", func(ctx context.Context, name, path string) error {
			s.names = map[uint64]bool{}
			return s.bodies(ctx, name, path, "")
		}); err != nil {
			return err
		}
	}
	return s.others()
}

// problem visits what does not move.
func (s *scanner) problem(kind Kind, item string, outcome Outcome, format string, args ...any) error {
	return s.visit(found{kind: kind, item: item, outcome: outcome, reason: fmt.Sprintf(format, args...)})
}

// twin tells of a name that differs from one before only in case.
func (s *scanner) twin(kind Kind, item, name string) error {
	h := maphash.String(s.seed, strings.ToLower(name))
	if s.names[h] {
		return s.problem(kind, item, Warned, "its name differs only in case from another one, and some file systems and programs take both for one")
	}
	s.names[h] = true
	return nil
}

// eachName calls f for the names in a directory, some at a time and in no
// order.
func (s *scanner) eachName(ctx context.Context, kind Kind, path, item string, f func(fs.DirEntry) error) error {
	d, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return s.problem(kind, item, Failed, "the directory cannot be read: %v", err)
	}
	defer d.Close() //nolint:errcheck // only read from
	for {
		list, err := d.ReadDir(readPage)
		for _, e := range list {
			if err := interrupted(ctx); err != nil {
				return err
			}
			if err := f(e); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) || err == nil && len(list) == 0:
			return nil
		case err != nil:
			return s.problem(kind, item, Failed, "the directory cannot be read: %v", err)
		}
	}
}

// folders visits the folders of a kind.
func (s *scanner) folders(ctx context.Context, kind Kind, valid *regexp.Regexp, rule string, f func(ctx context.Context, name, path string) error) error {
	s.names = map[uint64]bool{}
	root := filepath.Join(s.cfg.Dir, string(kind))
	var names []string
	err := s.eachName(ctx, kind, root, string(kind), func(e fs.DirEntry) error {
		item := string(kind) + "/" + e.Name()
		switch {
		case !e.IsDir():
			return s.problem(kind, item, Left, "it is no directory, and not of the layout")
		case !valid.MatchString(e.Name()):
			return s.problem(kind, item, Skipped, "the name cannot be used: %s", rule)
		}
		names = append(names, e.Name())
		return s.twin(kind, item, e.Name())
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := f(ctx, n, filepath.Join(root, n)); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) databases(ctx context.Context) error {
	root := filepath.Join(s.cfg.Dir, string(SQL))
	return s.eachName(ctx, SQL, root, string(SQL), func(e fs.DirEntry) error {
		return s.database(SQL, root, "d1/", e, func(name string) string {
			if !bindingName.MatchString(name) {
				return "the name cannot be used: a binding is of letters, digits and underscores"
			}
			return ""
		})
	})
}

func (s *scanner) objects(ctx context.Context, class, path string) error {
	return s.eachName(ctx, Objects, path, "do/"+class, func(e fs.DirEntry) error {
		return s.database(Objects, path, "do/"+class+"/", e, func(id string) string {
			if _, err := durable.ParseID(id); err != nil {
				return err.Error()
			}
			return ""
		})
	})
}

// database visits a file in a directory of databases.
func (s *scanner) database(kind Kind, dir, prefix string, e fs.DirEntry, fault func(name string) string) error {
	item := prefix + e.Name()
	name, is := strings.CutSuffix(e.Name(), databaseSuffix)
	if !is {
		for _, suffix := range []string{"-wal", "-shm", "-journal"} {
			base, ok := strings.CutSuffix(e.Name(), databaseSuffix+suffix)
			if !ok {
				continue
			}
			if _, err := os.Lstat(filepath.Join(dir, base+databaseSuffix)); err == nil {
				return nil // a part of that database
			}
			info, err := e.Info()
			if suffix == "-wal" && (err != nil || info.Size() > 0) {
				return s.problem(kind, item, Skipped, "it is the WAL of a database that is not there")
			}
		}
		return s.problem(kind, item, Left, "it is not of the layout")
	}
	item = prefix + name
	if !e.Type().IsRegular() {
		return s.problem(kind, item, Skipped, "it is no regular file")
	}
	if reason := fault(name); reason != "" {
		return s.problem(kind, item, Skipped, "%s", reason)
	}
	f := found{kind: kind, item: item, path: filepath.Join(dir, e.Name()), name: name}
	if kind == Objects {
		f.name, f.key = filepath.Base(dir), name
	}
	if kind == SQL {
		if err := s.twin(kind, item, name); err != nil {
			return err
		}
	}
	var err error
	if f.print, f.size, err = databasePrint(f.path); err != nil {
		return s.problem(kind, item, Failed, "it cannot be read: %v", err)
	}
	return s.visit(f)
}

// bodies visits a directory of a bucket and those below. Keys begin with base.
func (s *scanner) bodies(ctx context.Context, name, path, base string) error {
	var below []string
	err := s.eachName(ctx, Buckets, path, "r2/"+name+"/"+base, func(e fs.DirEntry) error {
		key := base + e.Name()
		item := "r2/" + name + "/" + key
		file := filepath.Join(path, e.Name())
		switch {
		case e.IsDir():
			below = append(below, e.Name())
			return nil
		case !e.Type().IsRegular():
			return s.problem(Buckets, item, Skipped, "it is no regular file")
		case strings.HasSuffix(key, tempSuffix):
			return s.problem(Buckets, item, Left, "it was not completely written when it was left")
		}
		if of, ok := strings.CutSuffix(key, sidecarSuffix); ok {
			if info, err := os.Lstat(strings.TrimSuffix(file, sidecarSuffix)); err == nil && info.Mode().IsRegular() {
				return nil // the body is visited
			}
			return s.problem(Buckets, item, Skipped, "there is no body %q beside it", of)
		}
		if _, err := os.Lstat(file + sidecarSuffix); errors.Is(err, fs.ErrNotExist) {
			return s.problem(Buckets, item, Skipped, "there is no %s file beside it", sidecarSuffix)
		}
		if err := bucket.CheckKey(key); err != nil {
			return s.problem(Buckets, item, Skipped, "%v", err)
		}
		if err := s.twin(Buckets, item, key); err != nil {
			return err
		}
		print, size, err := fingerprint(file, file+sidecarSuffix)
		if err != nil {
			return s.problem(Buckets, item, Failed, "it cannot be read: %v", err)
		}
		return s.visit(found{kind: Buckets, item: item, path: file, name: name, key: key, print: print, size: size})
	})
	if err != nil {
		return err
	}
	slices.Sort(below)
	for _, n := range below {
		if err := s.bodies(ctx, name, filepath.Join(path, n), base+n+"/"); err != nil {
			return err
		}
	}
	return nil
}

// others visits the rest of the data directory.
func (s *scanner) others() error {
	if s.cfg.has(Queues) {
		switch print, size, err := databasePrint(s.cfg.QueueFile); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			if err := s.problem(Queues, string(Queues), Failed, "%s cannot be read: %v", s.cfg.QueueFile, err); err != nil {
				return err
			}
		default:
			if err := s.visit(found{kind: Queues, item: string(Queues), path: s.cfg.QueueFile, print: print, size: size}); err != nil {
				return err
			}
		}
	}
	if list, err := os.ReadDir(filepath.Join(s.cfg.Dir, cacheDir)); err == nil && len(list) > 0 {
		return s.problem(cacheDir, cacheDir, Left, "%d files of caches: they are never moved", len(list))
	}
	return nil
}

// checkSource refuses a directory that must not be moved now.
func checkSource(dir, queueFile string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory", ErrRefused, dir)
	}
	if _, err := os.Lstat(filepath.Join(dir, halfName)); err == nil {
		return fmt.Errorf("%w: %s is the target of a move to a local directory that was not completed: complete it, or take another directory", ErrRefused, dir)
	}
	if err := checkLock(dir); err != nil {
		return err
	}
	for _, name := range []string{string(SQL), string(Buckets), string(Objects), cacheDir} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	if _, err := os.Lstat(queueFile); err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s holds no stores of a local host: no %s, %s, %s or %s", ErrRefused, dir, SQL, Objects, Buckets, queueName)
}

// checkLock refuses a directory that a process owns that lives.
func checkLock(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("writer lock: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return fmt.Errorf("%w: the writer lock %s holds no process id: when no host runs on the directory, remove it", ErrRefused, filepath.Join(dir, lockName))
	}
	if alive(pid) {
		return fmt.Errorf("%w: process %d owns %s (%s): stop it first", ErrRefused, pid, dir, lockName)
	}
	return nil
}
