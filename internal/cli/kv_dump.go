package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/mode"
)

// dumpFormat names the form of a dump and its version.
const dumpFormat = "dwk-kv-dump/1"

type kvDumpOptions struct {
	prefix tuple.Key
	file   string
}

func newKVDump(e *env) *cobra.Command {
	var o kvDumpOptions
	cmd := &cobra.Command{
		Use:   "dump [PREFIX]",
		Short: "Write all entries as JSON lines",
		Long: `Write all live entries, or those whose keys extend PREFIX, as JSON lines in the
order of their keys: a header, one entry a line, and a trailer with the number
of entries and the SHA-256 of their lines, so that a cut file is noticed.

All entries are from one moment: one read transaction. Memory does not grow with
the store.`,
		Example: `  dwk kv dump --output-file kv.jsonl
  dwk kv dump '["dwk_queue_dead"]' | jq .value`,
		Args: arguments("[PREFIX]"),
	}
	cmd.Flags().StringVar(&o.file, "output-file", "", "write to `FILE`, which comes to be only when the dump is complete")
	cmd.RunE = e.run(func(ctx context.Context, args []string) (err error) {
		if len(args) > 0 {
			if o.prefix, err = parseKey("PREFIX", args[0]); err != nil {
				return err
			}
		}
		return runKVDump(ctx, e, o)
	})
	return cmd
}

func runKVDump(ctx context.Context, e *env, o kvDumpOptions) error {
	ctx, cancel := e.boundIfAsked(ctx)
	defer cancel()
	s, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.file == "" {
		_, err := dump(ctx, e.term.Out, s, o.prefix)
		return err
	}
	var n int
	err = writeFile(o.file, func(w io.Writer) (err error) {
		n, err = dump(ctx, w, s, o.prefix)
		return err
	})
	if err == nil {
		e.term.Notef("wrote %d entries to %s", n, o.file)
	}
	return err
}

type dumpHeader struct {
	Format  string `json:"format"`
	StoreID string `json:"store_id"`
	// TakenAt is the primary's clock when the dump began, in epoch milliseconds.
	TakenAt int64     `json:"taken_at"`
	Prefix  tuple.Key `json:"prefix"`
}

type dumpTrailer struct {
	Entries int `json:"entries"`
	// SHA256 is that of the entry lines, each with its line feed.
	SHA256 string `json:"sha256"`
}

func dump(ctx context.Context, out io.Writer, s *host.Stores, prefix tuple.Key) (entries int, err error) {
	_, store, err := mode.Read(ctx, s.KV)
	if err != nil {
		return 0, err
	}
	now, err := s.KV.Now(ctx)
	if err != nil {
		return 0, err
	}
	w := &lineWriter{w: bufio.NewWriterSize(out, 64<<10), sum: sha256.New()}
	if prefix == nil {
		prefix = tuple.Key{}
	}
	if err := w.line(dumpHeader{dumpFormat, store.ID, now.UnixMilli(), prefix}, false); err != nil {
		return 0, err
	}
	for entry, err := range s.KV.Dump(ctx, prefix) {
		if err != nil {
			return entries, errors.Join(err, w.w.Flush())
		}
		j, err := asJSON(entry)
		if err == nil {
			err = w.line(j, true)
		}
		if err != nil {
			return entries, errors.Join(err, w.w.Flush())
		}
		entries++
	}
	if err := w.line(dumpTrailer{entries, hex.EncodeToString(w.sum.Sum(nil))}, false); err != nil {
		return entries, err
	}
	return entries, w.w.Flush()
}

// A lineWriter writes JSON lines and sums some of them.
type lineWriter struct {
	w   *bufio.Writer
	sum hash.Hash
	buf bytes.Buffer
}

func (l *lineWriter) line(v any, summed bool) error {
	l.buf.Reset()
	enc := json.NewEncoder(&l.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	if summed {
		l.sum.Write(l.buf.Bytes())
	}
	_, err := l.w.Write(l.buf.Bytes())
	return err
}

// writeFile has a file come to be, or be replaced, only when all of it is on
// the disk. Only its owner can read it.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}
