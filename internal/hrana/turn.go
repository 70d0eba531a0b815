package hrana

import (
	"context"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/hrana/proto"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// errTimedOut is what a stream gets whose transaction was ended because it held
// the right to write for too long while others waited.
var errTimedOut = &proto.Error{Message: "Transaction timed out", Code: "TRANSACTION_TIMEOUT"}

func errLocked() error {
	return &sqlite.Error{Code: sqlite.Busy, Message: "database is locked", Offset: -1}
}

// takeTurn waits for the right to write; it is kept while the transaction
// lasts, and no longer than the write limit when somebody waits for it.
func (st *stream) takeTurn(ctx context.Context) error {
	if st.writing {
		return nil
	}
	if st.busy {
		st.busy = false
		return errLocked()
	}
	ctx, cancel := context.WithTimeout(ctx, st.db.busyTimeout)
	defer cancel()
	for {
		limit := time.NewTimer(st.db.holds())
		select {
		case st.db.writing <- struct{}{}:
			limit.Stop()
			st.writing = true
			st.db.held(st)
			return nil
		case <-limit.C:
			st.db.evict()
		case <-ctx.Done():
			limit.Stop()
			return errLocked()
		}
	}
}

// yieldTurn gives the right to write back.
func (st *stream) yieldTurn() {
	if st.writing {
		st.db.held(nil)
		st.evicted.Store(false)
		st.writing = false
		<-st.db.writing
	}
}

// held notes who has the right to write.
func (d *database) held(st *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holder, d.since = st, clock.Now()
}

// holds is how much longer the holder may have the right to write.
func (d *database) holds() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holder == nil || d.holder.evicted.Load() {
		return foreignWait
	}
	return max(d.writeLimit-clock.Since(d.since), foreignWait)
}

// evict ends the transaction of the holder when its time is over: at once
// between two requests, else by its own request.
func (d *database) evict() {
	d.streams.mu.Lock()
	defer d.streams.mu.Unlock()
	d.mu.Lock()
	st := d.holder
	if st == nil || clock.Since(d.since) < d.writeLimit {
		d.mu.Unlock()
		return
	}
	// As the holder cannot yield now, the mark is about this turn.
	st.evicted.Store(true)
	d.mu.Unlock()
	if !st.inUse {
		st.timeOut()
	}
}

// timeOut ends the transaction of an evicted stream.
func (st *stream) timeOut() {
	stop := st.conn.Watch(context.Background())
	if !st.conn.Autocommit() && st.conn.Exec("ROLLBACK") != nil {
		st.changed = true // the connection is not used again after the stream
	}
	stop()
	st.timedOut = true
	st.yieldTurn()
}

// checkTurn ends a turn that was taken away while a statement ran, and returns
// what has become of the statement.
func (st *stream) checkTurn(err error) error {
	if !st.writing || !st.evicted.Load() || err == nil && st.conn.Autocommit() {
		return err // it was committed before
	}
	st.timeOut()
	return errTimedOut
}

// watched ends a statement with the request and with the stream's turn.
type watched struct {
	context.Context
	st *stream
}

func (w watched) Err() error {
	if w.st.evicted.Load() {
		return errTimedOut
	}
	return w.Context.Err()
}
