package mirror

// openMemory is about what an open connection takes besides what SQLite counts:
// C stacks and tables, buffers, the Go side of it.
const openMemory = 64 << 10

// Memory returns about the bytes of memory that the mirror takes, 0 while it is
// closed. It must not be called while a statement runs, for which it would wait.
func (m *Mirror) Memory() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return 0
	}
	return openMemory + m.conn.Memory()
}
