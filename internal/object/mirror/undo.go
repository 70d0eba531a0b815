package mirror

import (
	"fmt"
	"os"
)

// A Mark is a boundary within the changes since the last Confirm, to which
// UndoTo can return. It is valid until something is undone or confirmed, or the
// mirror is closed. Two marks are equal when nothing was written, undone or
// confirmed between them.
type Mark struct {
	frames int
	epoch  uint64
}

// Mark returns the present boundary. It fails within a transaction.
func (m *Mirror) Mark() (Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.open(); err != nil {
		return Mark{}, err
	}
	if !m.conn.Autocommit() {
		return Mark{}, ErrOpenTx
	}
	frames, err := m.conn.walFrames()
	if err != nil {
		return Mark{}, m.discardFor(ErrDiscarded, fmt.Errorf("mark: %w", err))
	}
	return Mark{frames: frames, epoch: m.epoch}, nil
}

// Undo returns to the confirmed position. An open transaction is rolled back
// and queries in progress are stopped. When it fails, the mirror has been
// discarded and the error wraps [ErrDiscarded].
func (m *Mirror) Undo() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil || m.conn == nil {
		return m.lost
	}
	return m.undo(m.end.frames)
}

// UndoTo undoes what was done after the mark and keeps what was done before
// it. It fails like Undo, and with [ErrStaleMark] without doing anything.
func (m *Mirror) UndoTo(mark Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		return m.lost
	}
	if m.conn == nil || mark.epoch != m.epoch {
		return ErrStaleMark
	}
	return m.undo(mark.frames)
}

// undo cuts the WAL back to its first frames. This needs no old page images:
// only checkpoints write to the database file, and those are ours.
func (m *Mirror) undo(frames int) error {
	if m.conn.Autocommit() && len(m.conn.stmts) == 0 && !m.conn.dirty {
		now, err := m.conn.walFrames()
		if err == nil && now == frames {
			m.captured = nil
			return m.trimWAL(frames)
		}
	}
	if m.pages == 0 && frames == 0 {
		// There was no database: nor shall there be an empty one.
		m.disconnect(false) //nolint:errcheck // the files are removed
		m.epoch++
		if err := m.removeFiles(); err != nil {
			return m.discardFor(ErrDiscarded, fmt.Errorf("undo: %w", err))
		}
		return nil
	}
	m.captured = nil
	m.epoch++
	return m.reconnect(frames)
}

// trimWAL cuts off what a transaction that was rolled back had spilled. SQLite
// would overwrite it at some time; until then it takes space.
func (m *Mirror) trimWAL(frames int) error {
	info, err := m.wal.Stat()
	if err == nil && info.Size() > frameOffset(frames, m.pageSize) {
		err = truncateWAL(m.path+"-wal", frames, m.pageSize)
	}
	if err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("undo: %w", err))
	}
	return nil
}

// reconnect opens the connection anew with the first frames of the WAL.
func (m *Mirror) reconnect(frames int) error {
	end, inWAL, captured := m.end, m.inWAL, m.captured
	err := m.disconnect(false)
	if err == nil {
		err = truncateWAL(m.path+"-wal", frames, m.pageSize)
	}
	if err == nil {
		err = m.connect()
	}
	if err == nil {
		err = m.checkFrames(frames)
	}
	if err != nil {
		return m.discardFor(ErrDiscarded, fmt.Errorf("undo: %w", err))
	}
	m.end, m.inWAL, m.captured = end, inWAL, captured
	return nil
}

func truncateWAL(path string, frames int, pageSize uint32) error {
	if frames == 0 {
		return os.Truncate(path, 0)
	}
	return os.Truncate(path, frameOffset(frames, pageSize))
}
