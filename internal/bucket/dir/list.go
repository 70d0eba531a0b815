package dir

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// List implements [durable.Bucket]. It holds the names of one directory a level
// at a time. A key whose files are damaged fails it.
func (b *Bucket) List(ctx context.Context, opts durable.ListOptions) (durable.Listing, error) {
	opts, err := bucket.CheckList(opts)
	if err != nil {
		return durable.Listing{}, err
	}
	l := &lister{ctx: ctx, prefix: opts.Prefix, delimiter: opts.Delimiter, limit: opts.Limit}
	if l.last, err = decodeCursor(opts.Cursor); err != nil {
		return durable.Listing{}, err
	}
	base, _ := path.Split(opts.Prefix)
	if base != "" && bucket.CheckKey(strings.TrimSuffix(base, "/")) != nil {
		return durable.Listing{}, nil // no key begins like this
	}
	if err := l.walk(b.root, base, base); err != nil && !errors.Is(err, errFull) {
		return durable.Listing{}, fmt.Errorf("list %q: %w", opts.Prefix, err)
	}
	return l.page, nil
}

// errFull ends a walk whose page is full.
var errFull = errors.New("page is full")

// A lister fills one page. An item is a key, or what keys are listed as.
type lister struct {
	ctx               context.Context
	prefix, delimiter string
	limit             int
	last              string // the last item of this page, or of the one before
	page              durable.Listing
}

// walk visits the directory that root has under sub, which ends at a slash. Its
// keys begin with base.
func (l *lister) walk(root *os.Root, sub, base string) error {
	f, err := subFolder(root, sub)
	if err != nil {
		if errors.Is(absent(err), durable.ErrNotFound) {
			return nil // it was removed meanwhile
		}
		return err
	}
	defer f.close()
	entries, err := f.entries()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if l.ctx.Err() != nil {
			return context.Cause(l.ctx)
		}
		switch {
		case !strings.HasSuffix(entry, "/"):
			err = l.visit(f, entry, base+entry)
		case l.mayHave(base + entry):
			err = l.walk(f.Root, entry, base+entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entries are the names of directories, with a slash, and of keys, in the order
// of the keys' bytes.
func (f *folder) entries() ([]string, error) {
	list, err := f.list()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list)/2+1)
	for _, e := range list {
		if name, ok := strings.CutSuffix(e.Name(), sidecarSuffix); ok && e.Type().IsRegular() {
			names = append(names, name)
		} else if e.IsDir() && !ok {
			names = append(names, e.Name()+"/")
		}
	}
	slices.Sort(names)
	return names, nil
}

// item is what a key is listed as; common is true when it is a prefix.
func (l *lister) item(key string) (item string, common bool) {
	if l.delimiter != "" {
		if i := strings.Index(key[len(l.prefix):], l.delimiter); i >= 0 {
			return key[:len(l.prefix)+i+len(l.delimiter)], true
		}
	}
	return key, false
}

// mayHave reports whether keys that begin with dir may have items that are
// still to be listed.
func (l *lister) mayHave(dir string) bool {
	if !strings.HasPrefix(dir, l.prefix) {
		return strings.HasPrefix(l.prefix, dir)
	}
	if item, common := l.item(dir); common {
		return item > l.last
	}
	return dir > l.last || strings.HasPrefix(l.last, dir)
}

func (l *lister) visit(f *folder, name, key string) error {
	if !strings.HasPrefix(key, l.prefix) || bucket.CheckKey(key) != nil || checkPlace(key) != nil {
		return nil
	}
	item, common := l.item(key)
	if item <= l.last {
		return nil
	}
	file, s, err := f.open(l.ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("key %q: %w", key, err)
	}
	file.Close()
	if len(l.page.Objects)+len(l.page.Prefixes) == l.limit {
		l.page.Cursor = encodeCursor(l.last)
		return errFull
	}
	l.last = item
	if common {
		l.page.Prefixes = append(l.page.Prefixes, item)
		return nil
	}
	info := s.info(key)
	info.ContentType, info.Metadata = "", nil
	l.page.Objects = append(l.page.Objects, info)
	return nil
}

func encodeCursor(item string) string { return base64.RawURLEncoding.EncodeToString([]byte(item)) }

func decodeCursor(cursor string) (string, error) {
	item, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(item) > bucket.MaxKey {
		return "", &bucket.InvalidError{What: "cursor", Value: cursor, Reason: "is not one of this bucket"}
	}
	return string(item), nil
}

// After returns the cursor of a list that goes on behind an item, a key or a
// prefix, whether there is such an item or not.
func After(item string) (cursor string) { return encodeCursor(item) }
