package keeper

import (
	"context"
	"fmt"
	"io"

	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/spool"
)

// Inputs are the entries of a merge and their files, which lie one behind the
// other in memory, or on disk when they are large.
type inputs struct {
	reader  Reader
	entries []objlog.Entry // without Data
	offsets []int64        // of their files
	arena   *spool.Spool
}

func newInputs(r Reader) *inputs {
	return &inputs{reader: r, arena: spool.New(spool.Config{Memory: inputMemory, Dir: r.Dir})}
}

func (in *inputs) close() { in.arena.Close() } //nolint:errcheck // a temporary file

// add appends entries that follow those that are there. A complete one makes
// them needless.
func (in *inputs) add(ctx context.Context, path []objlog.Entry) error {
	for _, e := range path {
		if e.Complete() {
			in.entries, in.offsets = nil, nil
		} else if n := len(in.entries); n > 0 && e.MinTXID > in.last().MaxTXID+1 {
			return fmt.Errorf("%w: commit %d after %d", objlog.ErrGap, e.MinTXID, in.last().MaxTXID)
		}
		offset := in.arena.Size()
		switch {
		case e.Ref != "":
			if err := in.reader.copyTo(ctx, in.arena, e); err != nil {
				return err
			}
		case e.Paged():
			if _, err := in.arena.Write(e.Data); err != nil {
				return err
			}
		}
		e.Data = nil
		in.entries, in.offsets = append(in.entries, e), append(in.offsets, offset)
	}
	return nil
}

func (in *inputs) last() objlog.Entry { return in.entries[len(in.entries)-1] }

// weight returns the bytes of the first entry and those of all others.
func (in *inputs) weight() (first, others int64) {
	for i, e := range in.entries {
		if i == 0 {
			first = e.Size
		} else {
			others += e.Size
		}
	}
	return first, others
}

// files are readers of the files of the last entries.
func (in *inputs) files(last []objlog.Entry) []io.Reader {
	var out []io.Reader
	skip := len(in.entries) - len(last)
	for i, e := range last {
		if e.Paged() {
			out = append(out, io.NewSectionReader(in.arena, in.offsets[skip+i], e.Size))
		}
	}
	return out
}
