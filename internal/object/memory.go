package object

// instanceMemory is what an object is counted with besides its mirror. What its
// instance holds is not known.
const instanceMemory = 16 << 10

// weigh notes how much memory an actor takes that is about to become idle.
func (a *actor) weigh() {
	n := int64(0)
	if a.mirror != nil {
		n = a.mirror.Memory() + instanceMemory
	}
	a.rt.mu.Lock()
	defer a.rt.mu.Unlock()
	a.weighLocked(n)
}

func (a *actor) weighLocked(n int64) {
	a.rt.memory += n - a.weight
	a.weight = n
}

// shrink drops the least recently used objects that are idle while there are
// more than may be in memory, or they take more of it than they may. The most
// recently used one stays.
func (r *Runtime) shrink() {
	var victims []*actor
	r.mu.Lock()
	count, memory := r.resident.Len(), r.memory
	for e := r.resident.Front(); e != r.resident.Back() && (count > r.cfg.Resident || memory > r.cfg.Memory); e = e.Next() {
		if v := e.Value.(*actor); r.claimLocked(v) {
			victims = append(victims, v)
			count--
			memory -= v.weight
		}
	}
	r.mu.Unlock()
	r.evict(victims)
}
