package hrana

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// serveCursor runs a batch and sends its rows as they come, one JSON object a
// line.
func (s *Server) serveCursor(w http.ResponseWriter, r *http.Request, db *database) {
	m, ok := s.readMessage(w, r)
	if !ok {
		return
	}
	err := error(protocolError("missing field `batch`"))
	if m.Batch != nil {
		err = checkBatch(m.Batch, 3)
	}
	if err != nil {
		sendText(w, http.StatusBadRequest, err.Error())
		return
	}
	fault, done := s.before(w, r, []proto.Request{{Type: "batch", Batch: m.Batch}})
	if done {
		return
	}
	st, ok := s.begin(w, r, db, m.Baton)
	if !ok {
		return
	}
	keep := false
	defer func() {
		if !keep {
			s.streams.drop(st)
		}
	}()
	st.busy = fault.Busy
	baton := s.streams.add(st)
	c := cursor{stream: st, out: bufio.NewWriterSize(w, 32<<10)}
	w.Header().Set("Content-Type", "text/plain")
	c.line = append(proto.AppendString([]byte(`{"baton":`), baton), `,"base_url":null}`...)
	if err = c.send(); err == nil {
		err = c.run(r.Context(), m.Batch)
	}
	if err == nil {
		fault.after(r.Context())
	}
	if e, ok := errors.AsType[protocolError](err); ok {
		// It is too late for a status.
		c.line = append(c.line[:0], `{"type":"error","error":`...)
		c.line = append(appendError(c.line, &proto.Error{Message: e.Error(), Code: "PROTOCOL_ERROR"}), '}')
		c.send()
		c.out.Flush()
		return
	}
	if err != nil || r.Context().Err() != nil || fault.CutAfter {
		cut()
	}
	keep = true
	s.streams.release(st)
	if c.out.Flush() != nil {
		s.streams.dropIdle(st, baton)
	}
}

// A cursor sends entries to its client.
type cursor struct {
	stream *stream
	out    *bufio.Writer
	line   []byte // the next one
	step   int
}

func (c *cursor) run(ctx context.Context, b *proto.Batch) error {
	defer c.stream.conn.Watch(watched{ctx, c.stream})()
	defer func() { c.stream.timedOut = false }()
	return c.stream.batch(ctx, b, func(i int, q *proto.Statement) error {
		if q == nil {
			return nil
		}
		c.step = i
		counts, err := c.stream.execute(ctx, q, c)
		if e, ok := errors.AsType[*proto.Error](err); ok {
			c.line = append(c.line, `{"type":"step_error","step":`...)
			c.line = strconv.AppendInt(c.line, int64(i), 10)
			c.line = append(appendError(append(c.line, `,"error":`...), e), '}')
			return errors.Join(e, c.send())
		}
		if err != nil {
			return err
		}
		c.line = append(counts.append(append(c.line, `{"type":"step_end",`...)), '}')
		return c.send()
	})
}

func (c *cursor) columns(s *sqlite.Stmt) error {
	c.line = append(c.line, `{"type":"step_begin","step":`...)
	c.line = strconv.AppendInt(c.line, int64(c.step), 10)
	c.line = append(appendColumns(append(c.line, `,"cols":`...), s), '}')
	return c.send()
}

func (c *cursor) row(s *sqlite.Stmt) error {
	line, err := appendRow(append(c.line, `{"type":"row","row":`...), s)
	if err != nil {
		return err
	}
	c.line = append(line, '}')
	return c.send()
}

// send sends the line.
func (c *cursor) send() error {
	c.line = append(c.line, '\n')
	_, err := c.out.Write(c.line)
	c.line = c.line[:0]
	return err
}
