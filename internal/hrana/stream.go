package hrana

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// expiredMemory is how long the server tells an expired stream from one that
// never was.
const expiredMemory = 300 * time.Second

// A stream is a connection that a client keeps from request to request by its
// baton.
type stream struct {
	db   *database
	conn *sqlite.Conn // nil once closed
	sqls map[int32]string
	// writing: the stream has the token of db.writing.
	writing bool
	// changed: a statement may have changed a setting of the connection.
	changed bool
	strict  bool
	// readOnly: the request that is under way must not write.
	readOnly bool
	busy     bool // the next statement that writes finds a lock
	// evicted: the turn is over, and the transaction with it.
	evicted atomic.Bool

	// timedOut: the transaction was ended, and the client does not know yet. As
	// the connection, it belongs to the request that is under way; without one
	// it is guarded by streams.mu.
	timedOut bool

	// Guarded by streams.mu:
	id, seq uint64
	inUse   bool
	expired bool
	since   time.Time // of the end of the last request
}

// newStream is a stream that no baton leads to yet.
func newStream(ctx context.Context, db *database) (*stream, error) {
	conn, err := db.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &stream{db: db, conn: conn, sqls: map[int32]string{}, inUse: true}, nil
}

// close rolls an open transaction back.
func (s *stream) close() {
	if s.conn == nil {
		return
	}
	if s.changed || !s.conn.Autocommit() && s.conn.Exec("ROLLBACK") != nil {
		s.conn.Close()
	} else {
		s.db.giveBack(s.conn)
	}
	s.conn = nil
	s.yieldTurn()
}

// streams are the open ones, by id.
type streams struct {
	key    []byte
	expiry time.Duration
	stop   chan struct{}
	swept  chan struct{}

	mu   sync.Mutex
	byID map[uint64]*stream
}

func newStreams(expiry time.Duration) *streams {
	s := &streams{
		key: newKey(), expiry: expiry,
		stop: make(chan struct{}), swept: make(chan struct{}),
		byID: map[uint64]*stream{},
	}
	go s.sweep()
	return s
}

func newKey() []byte {
	key := make([]byte, 32)
	rand.Read(key)
	return key
}

// sweep closes idle streams until close.
func (s *streams) sweep() {
	defer close(s.swept)
	t := time.NewTicker(max(s.expiry/10, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.stop:
			return
		}
		s.mu.Lock()
		for id, st := range s.byID {
			idle := clock.Since(st.since)
			if !st.inUse && !st.expired && idle > s.expiry {
				st.close()
				st.expired = true
			}
			if st.expired && idle > s.expiry+expiredMemory {
				delete(s.byID, id)
			}
		}
		s.mu.Unlock()
	}
}

func (s *streams) close() {
	close(s.stop)
	<-s.swept
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.byID {
		st.close()
	}
	clear(s.byID)
}

// errExpired is answered as JSON, with a code, unlike other protocol errors.
const errExpired = protocolError("The stream has expired due to inactivity")

// expire ends the streams without a request that is under way, as if they had
// been idle for long.
func (s *streams) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.byID {
		if !st.inUse && !st.expired {
			st.close()
			st.expired = true
		}
	}
}

// forget makes all batons invalid, as a restart does.
func (s *streams) forget() {
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = newKey()
}

// take returns the stream of a baton, for one request to the database.
func (s *streams) take(baton string, db *database) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := base64.RawStdEncoding.DecodeString(baton)
	if err != nil || len(b) != 16+sha256.Size || !hmac.Equal(b[16:], s.mac(b[:16])) {
		return nil, protocolError("Received an invalid baton")
	}
	id, seq := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	st := s.byID[id]
	switch {
	case st == nil || st.db != db:
		return nil, protocolError("Received an invalid baton")
	case st.inUse || st.seq != seq:
		return nil, protocolError("Received a baton that has already been used")
	case st.expired:
		return nil, errExpired
	}
	st.inUse = true
	st.seq++
	return st, nil
}

// add gives a stream the baton for its next request, which becomes valid by
// release.
func (s *streams) add(st *stream) (baton string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st.id == 0 {
		var b [16]byte
		rand.Read(b[:])
		st.id, st.seq = binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
		if s.byID[st.id] != nil {
			st.id = 0
		}
	}
	st.inUse = true
	s.byID[st.id] = st
	b := binary.BigEndian.AppendUint64(nil, st.id)
	b = binary.BigEndian.AppendUint64(b, st.seq)
	return base64.RawStdEncoding.EncodeToString(append(b, s.mac(b)...))
}

// release ends a request; the stream waits for the next one.
func (s *streams) release(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.inUse = false
	st.since = clock.Now()
}

// drop closes the stream of a request that is under way.
func (s *streams) drop(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.close()
	delete(s.byID, st.id)
}

// dropIdle closes a stream whose baton could not be delivered, unless a request
// came with it all the same.
func (s *streams) dropIdle(st *stream, baton string) {
	if again, err := s.take(baton, st.db); err == nil && again == st {
		s.drop(st)
	}
}

func (s *streams) mac(b []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write(b)
	return h.Sum(nil)
}
