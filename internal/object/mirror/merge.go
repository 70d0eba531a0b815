package mirror

import (
	"fmt"
	"io"
)

// Merge writes the entry of the commits from minTXID to maxTXID, which has the
// newest state of every page of the inputs. These are entries that follow each
// other, read to their ends side by side and verified; each may begin before
// the one before it ends. Commits without pages have no input. Only the first
// input may be a snapshot; the result is one then, and minTXID must be 1.
//
// It takes some 20 KB for each input and the index of the result.
// Errors that the inputs are to blame for wrap [ErrBadEntry]; what was written
// is of no use then.
func Merge(w io.Writer, minTXID, maxTXID uint64, timestamp int64, inputs ...io.Reader) (Header, error) {
	m := merger{decoders: make([]*decoder, len(inputs)), frames: make([]frame, len(inputs))}
	defer m.release()
	for i, r := range inputs {
		m.decoders[i] = decodeBeside(r)
		if err := m.decoders[i].header(); err != nil {
			return Header{}, fmt.Errorf("input %d: %w", i, err)
		}
	}
	h, err := m.header(minTXID, maxTXID, timestamp)
	if err != nil {
		return h, err
	}
	enc := newEncoder(w)
	defer enc.release()
	if err := enc.header(h); err != nil {
		return h, err
	}
	if err := m.pages(enc, h); err != nil {
		return h, err
	}
	if h.Post, err = m.post(h); err != nil {
		return h, err
	}
	return h, enc.close(h.Post)
}

// A merger reads entries side by side.
type merger struct {
	decoders []*decoder
	frames   []frame // the next page of each
	sum      uint64  // of the pages of the result
}

func (m *merger) release() {
	for _, d := range m.decoders {
		if d != nil {
			d.release()
		}
	}
}

// header checks how the inputs follow each other, as far as their headers tell.
func (m *merger) header(minTXID, maxTXID uint64, timestamp int64) (Header, error) {
	if len(m.decoders) == 0 {
		return Header{}, badEntry("nothing to merge")
	}
	first, last := m.decoders[0].h, m.decoders[len(m.decoders)-1].h
	if first.MinTXID < minTXID || first.MaxTXID < minTXID || last.MaxTXID > maxTXID || first.Snapshot() != (minTXID == 1) {
		return Header{}, badEntry("commits %d to %d cannot be made of %d to %d", minTXID, maxTXID, first.MinTXID, last.MaxTXID)
	}
	for i, d := range m.decoders[1:] {
		before := m.decoders[i].h
		switch {
		case d.h.Snapshot():
			return Header{}, badEntry("input %d is a snapshot", i+1)
		case d.h.PageSize != before.PageSize:
			return Header{}, badEntry("page size %d after %d", d.h.PageSize, before.PageSize)
		case d.h.MaxTXID <= before.MaxTXID:
			return Header{}, badEntry("commit %d after %d", d.h.MaxTXID, before.MaxTXID)
		}
	}
	return Header{
		PageSize: last.PageSize, Pages: last.Pages, MinTXID: minTXID, MaxTXID: maxTXID, Timestamp: timestamp, Pre: first.Pre,
	}, nil
}

// pages writes the newest state of every page.
func (m *merger) pages(enc *encoder, h Header) error {
	m.sum = checksumFlag
	for i := range m.decoders {
		if err := m.advance(i); err != nil {
			return err
		}
	}
	for {
		var newest frame
		for _, f := range m.frames {
			// Of the same page the later input has the newer state.
			if f.pgno != 0 && (newest.pgno == 0 || f.pgno <= newest.pgno) {
				newest = f
			}
		}
		if newest.pgno == 0 {
			return nil
		}
		// A page beyond the end was cut off by a later commit.
		if newest.pgno <= h.Pages {
			m.sum = addPage(m.sum, pageSum(newest.pgno, newest.page))
			if err := enc.compressed(newest.pgno, newest.page, newest.block); err != nil {
				return err
			}
		}
		for i, f := range m.frames {
			if f.pgno == newest.pgno {
				if err := m.advance(i); err != nil {
					return err
				}
			}
		}
	}
}

func (m *merger) advance(i int) (err error) {
	if m.frames[i], err = m.decoders[i].next(); err != nil {
		return fmt.Errorf("input %d: %w", i, err)
	}
	return nil
}

// post returns the checksum after the last input, when the checksums of all
// inputs follow each other.
func (m *merger) post(h Header) (uint64, error) {
	for i, d := range m.decoders[1:] {
		before := m.decoders[i].h
		if d.h.MinTXID > before.MaxTXID && d.h.Pre != before.Post {
			return 0, badEntry("input %d begins at %016x, the one before it ends at %016x", i+1, d.h.Pre, before.Post)
		}
	}
	post := m.decoders[len(m.decoders)-1].h.Post
	if h.Snapshot() && m.sum != post {
		return 0, badEntry("database checksum is %016x, want %016x", m.sum, post)
	}
	return post, nil
}
