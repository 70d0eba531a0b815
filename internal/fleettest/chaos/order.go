package chaos

import (
	"fmt"
	"slices"
	"time"
)

// disorder tells what is wrong with what the answers about one object say, ""
// when nothing is: an answer that was asked for when another had come must not be
// of an earlier commit or lease, a write must be of a later commit; the leases
// of later commits are not earlier ones; and one lease is one replica's.
func disorder(list []sight) string {
	holders := map[int64]string{}
	for _, s := range list {
		if other, ok := holders[s.epoch]; ok && other != s.replica {
			return fmt.Sprintf("lease %d is that of %s and of %s", s.epoch, other, s.replica)
		}
		holders[s.epoch] = s.replica
	}
	// By the time when they were asked for, with the greatest of what had come
	// before.
	byFrom, byTo := slices.Clone(list), slices.Clone(list)
	slices.SortFunc(byFrom, func(a, b sight) int { return a.from.Compare(b.from) })
	slices.SortFunc(byTo, func(a, b sight) int { return a.to.Compare(b.to) })
	var last sight
	for i, s := 0, 0; i < len(byFrom); i++ {
		for ; s < len(byTo) && byTo[s].to.Before(byFrom[i].from); s++ {
			if byTo[s].epoch > last.epoch {
				last.epoch, last.replica = byTo[s].epoch, byTo[s].replica
			}
			last.txid = max(last.txid, byTo[s].txid)
			last.to = byTo[s].to
		}
		switch a := byFrom[i]; {
		case a.epoch < last.epoch:
			return fmt.Sprintf("an answer of %s under lease %d, asked for %v after one under lease %d", a.replica, a.epoch, a.from.Sub(last.to).Round(time.Microsecond), last.epoch)
		case a.txid < last.txid:
			return fmt.Sprintf("an answer of %s at commit %d, asked for %v after one at commit %d", a.replica, a.txid, a.from.Sub(last.to).Round(time.Microsecond), last.txid)
		case a.writes && a.txid == last.txid:
			return fmt.Sprintf("a write of %s at commit %d, asked for when that had been answered", a.replica, a.txid)
		}
	}
	return ""
}
