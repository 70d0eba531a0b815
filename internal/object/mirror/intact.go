package mirror

import "os"

// Intact reports whether the database file and its WAL are still there, as this
// mirror left them: somebody may have deleted them. A mirror that is not intact is to be
// discarded; the log has everything.
func (m *Mirror) Intact() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == 0 && m.conn == nil {
		return true
	}
	if m.conn != nil {
		for _, f := range []*os.File{m.db, m.wal} {
			if there, err := linked(f); err != nil || !there {
				return false
			}
		}
		return true
	}
	st, err := os.Stat(m.path)
	return err == nil && st.Size() == int64(m.pages)*int64(m.pageSize)
}
