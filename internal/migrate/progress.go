package migrate

import "sync/atomic"

// Progress are figures of a run, which others may read while it goes on.
type Progress struct {
	kinds [4]kindProgress
}

type kindProgress struct{ totalItems, totalBytes, items, bytes, skipped, rows atomic.Int64 }

// A Snapshot is the progress of a kind at one moment.
type Snapshot struct {
	Kind Kind
	// TotalItems and TotalBytes are what the plan has found, Items and Bytes what
	// is done, and Skipped the bytes of those that needed nothing.
	TotalItems, TotalBytes, Items, Bytes, Skipped, Rows int64
}

// Snapshot returns the progress of all kinds.
func (p *Progress) Snapshot() []Snapshot {
	var out []Snapshot
	for i, k := range Kinds {
		c := &p.kinds[i]
		out = append(out, Snapshot{k, c.totalItems.Load(), c.totalBytes.Load(), c.items.Load(), c.bytes.Load(), c.skipped.Load(), c.rows.Load()})
	}
	return out
}

func (p *Progress) of(k Kind) *kindProgress {
	for i := range Kinds {
		if Kinds[i] == k {
			return &p.kinds[i]
		}
	}
	return &kindProgress{} // nothing that is counted
}

func (p *Progress) plan(k Kind, items, bytes int64) {
	p.of(k).totalItems.Add(items)
	p.of(k).totalBytes.Add(bytes)
}

func (p *Progress) item(k Kind)           { p.of(k).items.Add(1) }
func (p *Progress) bytes(k Kind, n int64) { p.of(k).bytes.Add(n) }
func (p *Progress) rows(k Kind, n int64)  { p.of(k).rows.Add(n) }
func (p *Progress) skip(k Kind, n int64) {
	p.of(k).skipped.Add(n)
	p.of(k).bytes.Add(n)
}
