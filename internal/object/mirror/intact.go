package mirror

import "os"

// Intact reports whether the database file is still there, as this mirror left
// it: somebody may have deleted it. A mirror that is not intact is to be
// discarded; the log has everything.
func (m *Mirror) Intact() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == 0 && m.conn == nil {
		return true
	}
	if m.conn != nil {
		there, err := linked(m.db)
		return err == nil && there
	}
	st, err := os.Stat(m.path)
	return err == nil && st.Size() == int64(m.pages)*int64(m.pageSize)
}
