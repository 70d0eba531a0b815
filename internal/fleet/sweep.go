package fleet

import (
	"log/slog"
	"time"

	"github.com/davidwkeith/dwk/internal/event"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
)

// A Sweep is the part of a poll that removes expired entries. Nobody reads them;
// it frees their space.
type Sweep struct {
	// Batch is how many entries one poll removes at most.
	Batch int
	Log   *slog.Logger
}

var _ Part = (*Sweep)(nil)

// Name implements [Part].
func (s *Sweep) Name() string { return "sweep" }

// Poll implements [Part].
func (s *Sweep) Poll(int) []libsql.Statement { return []libsql.Statement{kv.SweepStatement(s.Batch)} }

// Polled implements [Part].
func (s *Sweep) Polled(res []libsql.Result, err error, _ time.Time) (again bool) {
	if err != nil || res[0].Changes == 0 {
		return false
	}
	s.Log.Debug(event.KVSweepOK, event.KeyCount, res[0].Changes)
	return res[0].Changes >= int64(s.Batch)
}
