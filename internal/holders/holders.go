// Package holders keeps which replicas hold WebSockets of an object: one entry a
// replica, which its polls keep alive. An event of the object that runs on
// another replica marks the entries; the next poll of each replica sees the mark.
package holders

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// Prefix is the first element of the keys; class, object and replica follow.
const Prefix = "dwk_socket"

// An Entry is the stored JSON. Its stamp changes with each mark.
type Entry struct {
	// Sockets is how many the replica has, as of its last poll.
	Sockets int `json:"sockets"`
	// Wake is when the entry was last marked, in epoch milliseconds by the
	// primary's clock, or 0.
	Wake int64 `json:"wake,omitempty"`
}

// AddHold adds to a plan that the replica holds sockets of the object. Its plan
// is the commit by which an event accepts a socket, so that every later commit of
// the object finds the entry.
func AddHold(p *kv.Plan, class, id, replica string, sockets int, ttl time.Duration) {
	v, _ := json.Marshal(Entry{Sockets: sockets}) // it always can be
	p.Set(tuple.MustEncode(Prefix, class, id, replica), string(v), ttl)
}

// AddMark adds to a plan that the entries of all replicas but one are marked.
func AddMark(p *kv.Plan, class, id, except string) {
	p.Stamped()
	prefix := tuple.MustEncode(Prefix, class, id)
	p.Add(`UPDATE kv SET v = json_object('sockets', CASE WHEN json_valid(v) THEN json_extract(v, '$.sockets') ELSE 0 END, 'wake', `+kv.Now+`),
	ver = (SELECT seq FROM kv_meta WHERE id = 0) WHERE k >= ? AND k < ? AND k <> ? AND `+kv.Live+` AND `+kv.OK,
		prefix, tuple.RangeEnd(prefix), tuple.MustEncode(Prefix, class, id, except))
}

// around are the bytes of a key before and behind the object's id, which are hex
// digits.
func around(class, replica string) (before, behind []byte) {
	text := tuple.MustEncode("")
	before = append(tuple.MustEncode(Prefix, class), text[:len(text)-1]...)
	behind = append(text[len(text)-1:len(text):len(text)], tuple.MustEncode(replica)...)
	return before, behind
}

// LookStatement reads the replica's entries of objects, for [ReadLook].
func LookStatement(class, replica string, ids []string) libsql.Statement {
	list, _ := json.Marshal(ids) // it always can be
	before, behind := around(class, replica)
	return libsql.S(`SELECT j.value, kv.ver, CASE WHEN json_valid(kv.v) THEN json_extract(kv.v, '$.wake') END
	FROM json_each(?) j CROSS JOIN kv ON kv.k = CAST(? || j.value || ? AS BLOB) WHERE `+kv.Live, string(list), before, behind)
}

// Looked is what a look shows of a replica's entry.
type Looked struct {
	Stamp  kv.Versionstamp
	Marked bool
}

// ReadLook returns the entries that are live, by object.
func ReadLook(r libsql.Result) map[string]Looked {
	out := make(map[string]Looked, len(r.Rows))
	for _, row := range r.Rows {
		id, _ := row[0].(string)
		ver, _ := row[1].(int64)
		out[id] = Looked{kv.Versionstamp(ver), row[2] != nil}
	}
	return out
}

// KeepStatement extends the replica's entries of objects, which it has so many
// sockets of. It brings no entry back that has expired.
func KeepStatement(class, replica string, sockets map[string]int, ttl time.Duration) libsql.Statement {
	list, _ := json.Marshal(sockets) // it always can be
	before, behind := around(class, replica)
	return libsql.S(`UPDATE kv SET expires_at = `+kv.Now+` + ?, v = CASE WHEN json_valid(v) THEN json_set(v, '$.sockets', j.value) ELSE json_object('sockets', j.value) END
	FROM json_each(?) j WHERE kv.k = CAST(? || j.key || ? AS BLOB) AND `+kv.Live, ttl.Milliseconds(), string(list), before, behind)
}

// RemoveAll removes all entries of a replica that stops.
func RemoveAll(ctx context.Context, s *kv.Store, replica string) error {
	prefix, end := tuple.MustEncode(Prefix), tuple.MustEncode(replica)
	p := kv.NewPlan()
	p.Add(`DELETE FROM kv WHERE k >= ? AND k < ? AND substr(k, ?) = ? AND `+kv.OK, prefix, tuple.RangeEnd(prefix), -len(end), end)
	if _, err := s.Commit(ctx, p); err != nil {
		return fmt.Errorf("remove the entries of sockets of replica %s: %w", replica, err)
	}
	return nil
}
