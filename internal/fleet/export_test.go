package fleet

import "time"

// Late has the next poll hold a heartbeat.
func (r *Registry) Late() { r.beat = time.Time{} }
