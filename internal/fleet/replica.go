package fleet

import (
	"encoding/json"
	"fmt"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// The first elements of the keys.
const (
	ReplicaPrefix = "dwk_replica"
	DrainPrefix   = "dwk_drain"
)

// A State is a phase of a replica's life, as its entry tells it.
type State string

// The states, in their order.
const (
	Starting State = "starting"
	Ready    State = "ready"
	Draining State = "draining"
	Stopping State = "stopping"
)

// Load is what a replica does at one moment.
type Load struct {
	// InFlight are requests, Objects those in memory, Sockets the open ones.
	InFlight int `json:"in_flight"`
	Objects  int `json:"objects"`
	Sockets  int `json:"sockets"`
}

// Replica is the stored JSON of a replica's entry. Times are epoch milliseconds
// by the primary's clock.
type Replica struct {
	State State `json:"state"`
	// Step is what a replica that is about to stop waits for.
	Step      string `json:"step,omitempty"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Version   string `json:"version"`
	Layout    int    `json:"layout"`
	StartedAt int64  `json:"started_at"`
	// Public is the URL of the public listener.
	Public string `json:"public"`
	Load
	// HeartbeatAt is when the entry was last written.
	HeartbeatAt int64 `json:"heartbeat_at,omitempty"`
}

// A Live is a replica's entry that has not expired.
type Live struct {
	ID string `json:"id"`
	Replica
	Stamp     kv.Versionstamp `json:"-"`
	ExpiresAt int64           `json:"expires_at"`
}

// maxReplicas bounds a list of replicas.
const maxReplicas = 10_000

// replicasStatement reads all live entries, for readReplicas.
func replicasStatement() libsql.Statement {
	lo := tuple.MustEncode(ReplicaPrefix)
	return libsql.S(`SELECT k, v, ver, expires_at FROM kv WHERE k >= ? AND k < ? AND `+kv.Live+` ORDER BY k LIMIT ?`, lo, tuple.RangeEnd(lo), maxReplicas)
}

func readReplicas(r libsql.Result) ([]Live, error) {
	list := []Live{}
	for _, row := range r.Rows {
		k, _ := row[0].([]byte)
		v, _ := row[1].(string)
		key, err := tuple.Decode(k)
		if err != nil {
			return nil, fmt.Errorf("key %x in the registry: %w", k, err)
		}
		var l Live
		if len(key) == 2 {
			l.ID, _ = key[1].(string)
		}
		if err := json.Unmarshal([]byte(v), &l.Replica); err != nil {
			return nil, fmt.Errorf("entry %s: %w", key, err)
		}
		ver, _ := row[2].(int64)
		l.Stamp = kv.Versionstamp(ver)
		l.ExpiresAt, _ = row[3].(int64)
		list = append(list, l)
	}
	return list, nil
}
