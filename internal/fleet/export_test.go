package fleet

import "time"

// Late has the next poll hold a heartbeat.
func (r *Registry) Late() { r.beat = time.Time{} }

// Asked reports whether somebody waits for the decision to stop.
func (r *Registry) Asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
