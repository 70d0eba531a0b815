package fleet

import (
	"fmt"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/mode"
)

// Verdict says in one line whether the fleet is all right, and if not, what is
// wrong. Dead letters are told of and no fault.
func (s Status) Verdict() (ok bool, text string) {
	if s.New() {
		return false, "the store set is new: no replica has claimed it"
	}
	if err := mode.Check(s.Mode, s.Store); err != nil {
		return false, strings.TrimPrefix(err.Error(), mode.ErrRefused.Error()+": ")
	}
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if s.Ready("") == 0 {
		add("no replica is ready")
	}
	for _, r := range s.Replicas {
		if r.Layout != s.Store.Layout {
			add("replica %s writes layout %d", r.ID, r.Layout)
		}
	}
	overdue := func(what string, list []Backlog) {
		var n, oldest int64
		for _, b := range list {
			if b.Overdue > 0 && !b.Paused {
				n += b.Overdue
				oldest = max(oldest, b.OldestMs)
			}
		}
		if n > 0 {
			add("%s, the first since %s", count(n, what), (time.Duration(oldest) * time.Millisecond).Round(time.Second))
		}
	}
	overdue("overdue alarm", s.Alarms)
	overdue("overdue message", s.Messages)
	if s.LeftOver > 0 {
		add("%s of replicas that are gone, until the TTL is over", count(s.LeftOver, "lease"))
	}
	if len(wrong) > 0 {
		return false, strings.Join(append(wrong, s.dead()...), "; ")
	}
	return true, strings.Join(append([]string{"all right: " + count(int64(s.Ready("")), "replica") + " ready"}, s.dead()...), "; ")
}

// dead tells of dead letters, if there are any.
func (s Status) dead() []string {
	var n int64
	for _, list := range [][]Backlog{s.Alarms, s.Messages} {
		for _, b := range list {
			n += b.Dead
		}
	}
	if n == 0 {
		return nil
	}
	return []string{count(n, "dead letter")}
}

func count(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
