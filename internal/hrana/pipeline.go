package hrana

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
	"github.com/davidwkeith/dwk/internal/sqlite"
)

// Limits of the texts that a stream may store.
const (
	maxStored     = 50
	maxStoredSize = 5 << 10
)

var errTooLarge = &proto.Error{Message: "Response is too large", Code: "RESPONSE_TOO_LARGE"}

// servePipeline executes the requests of one message, one after the other also
// when one fails.
func (s *Server) servePipeline(w http.ResponseWriter, r *http.Request, db *database, version int) {
	m, ok := s.readMessage(w, r)
	if !ok {
		return
	}
	for i := range m.Requests {
		if err := checkRequest(&m.Requests[i], version); err != nil {
			sendText(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	fault, done := s.before(w, r, m.Requests)
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
	p := pipeline{stream: st, limit: s.cfg.MaxResponse}
	err := p.run(r.Context(), m.Requests)
	if err == nil {
		fault.after(r.Context())
	}
	_, protocol := errors.AsType[protocolError](err)
	switch {
	case protocol:
		sendText(w, http.StatusBadRequest, err.Error())
		return
	case err != nil || r.Context().Err() != nil || fault.CutAfter:
		cut()
	}
	baton, head := "", []byte(`{"baton":null`)
	if st.conn != nil {
		keep = true
		baton = s.streams.add(st)
		s.streams.release(st)
		head = proto.AppendString([]byte(`{"baton":`), baton)
	}
	head = append(head, `,"base_url":null,"results":[`...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(head)+len(p.out)+2))
	w.Write(head)
	w.Write(p.out)
	_, err = w.Write([]byte("]}"))
	if baton == "" {
		return // what cannot be sent then is lost, and nothing with it
	}
	if errors.Join(err, http.NewResponseController(w).Flush()) != nil {
		s.streams.dropIdle(st, baton)
	}
}

// begin returns the stream of a baton or a new one; false after it has answered
// with an error.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, db *database, baton *string) (*stream, bool) {
	if baton != nil {
		st, err := s.streams.take(*baton, db)
		switch err {
		case nil:
			st.readOnly = s.right(r) == reading
			return st, true
		case errExpired:
			sendJSON(w, http.StatusBadRequest, proto.Error{Message: err.Error(), Code: "STREAM_EXPIRED"})
		default:
			sendText(w, http.StatusBadRequest, err.Error())
		}
		return nil, false
	}
	st, err := newStream(r.Context(), db)
	if err != nil {
		sendError(w, http.StatusInternalServerError, err.Error())
		return nil, false
	}
	st.strict, st.readOnly = s.cfg.Strict, s.right(r) == reading
	return st, true
}

// A pipeline is one run of requests on a stream; out holds their results.
type pipeline struct {
	stream *stream
	out    []byte
	limit  int
}

// run returns an error when the whole pipeline, and its stream, ends with it.
func (p *pipeline) run(ctx context.Context, requests []proto.Request) error {
	for i := range requests {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.request(ctx, &requests[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *pipeline) request(ctx context.Context, q *proto.Request) error {
	if len(p.out) > 0 {
		p.out = append(p.out, ',')
	}
	start := len(p.out)
	p.out = append(p.out, `{"type":"ok","response":{"type":"`...)
	p.out = append(p.out, q.Type...)
	p.out = append(p.out, '"')
	err := p.respond(ctx, q)
	if e, ok := errors.AsType[*proto.Error](err); ok {
		p.out = append(p.out[:start], `{"type":"error","error":`...)
		p.out = append(appendError(p.out, e), '}')
		return nil
	}
	p.out = append(p.out, "}}"...)
	return err
}

// respond appends the members of the response behind its type.
func (p *pipeline) respond(ctx context.Context, q *proto.Request) error {
	st := p.stream
	switch q.Type {
	case "store_sql":
		if _, ok := st.sqls[*q.SQLID]; ok {
			return protocolError("SQL text " + strconv.Itoa(int(*q.SQLID)) + " already exists")
		}
		switch {
		case len(st.sqls) >= maxStored:
			return &proto.Error{Message: "Server cannot store more than 50 SQL texts", Code: "SQL_STORE_TOO_MANY"}
		case len(*q.SQL) > maxStoredSize:
			return &proto.Error{Message: "SQL text is too large to be stored", Code: "SQL_STORE_TOO_LARGE"}
		}
		st.sqls[*q.SQLID] = *q.SQL
		return nil
	case "close_sql":
		delete(st.sqls, *q.SQLID)
		return nil
	case "close":
		st.close()
		return nil
	}
	if st.conn == nil {
		return protocolError("Stream for this baton was closed")
	}
	defer st.conn.Watch(watched{ctx, st})()
	switch q.Type {
	case "execute", "batch", "sequence":
		defer func() { st.timedOut = false }() // the client learns of it by this one
	}
	switch q.Type {
	case "execute":
		p.out = append(p.out, `,"result":`...)
		return p.statement(ctx, q.Stmt)
	case "batch":
		p.out = append(p.out, `,"result":{"step_results":[`...)
		return p.batch(ctx, q.Batch)
	case "sequence":
		sql, err := st.text(q.SQL, q.SQLID)
		if err != nil {
			return err
		}
		return st.sequence(ctx, sql)
	case "describe":
		sql, err := st.text(q.SQL, q.SQLID)
		if err != nil {
			return err
		}
		p.out = append(p.out, `,"result":`...)
		return p.describe(sql)
	default: // get_autocommit
		p.out = append(p.out, `,"is_autocommit":`...)
		p.out = strconv.AppendBool(p.out, st.conn.Autocommit())
		return nil
	}
}

// statement appends the result of one statement.
func (p *pipeline) statement(ctx context.Context, q *proto.Statement) error {
	sink := resultSink{pipeline: p}
	c, err := p.stream.execute(ctx, q, &sink)
	if err != nil {
		return err
	}
	p.out = append(p.out, "],"...)
	p.out = append(c.append(p.out), `,"replication_index":null,"rows_read":0,"rows_written":0,"query_duration_ms":0}`...)
	return nil
}

// batch appends step_results, step_errors and the end of the result. An answer
// that grows too large ends the batch where it is, without a rollback.
func (p *pipeline) batch(ctx context.Context, b *proto.Batch) error {
	var failures []byte
	err := p.stream.batch(ctx, b, func(i int, q *proto.Statement) error {
		if i > 0 {
			p.out = append(p.out, ',')
			failures = append(failures, ',')
		}
		if q == nil {
			p.out = append(p.out, "null"...)
			failures = append(failures, "null"...)
			return nil
		}
		start := len(p.out)
		err := p.statement(ctx, q)
		if e, ok := errors.AsType[*proto.Error](err); ok && e != errTooLarge {
			p.out = append(p.out[:start], "null"...)
			failures = appendError(failures, e)
			return e
		}
		failures = append(failures, "null"...)
		return err
	})
	if err != nil {
		return err
	}
	p.out = append(p.out, `],"step_errors":[`...)
	p.out = append(p.out, failures...)
	p.out = append(p.out, `],"replication_index":null}`...)
	return nil
}

func (p *pipeline) describe(sql string) error {
	s, err := p.stream.conn.Statement(sql)
	if err != nil {
		return statementError(err)
	}
	defer s.Done() //nolint:errcheck // not run
	p.out = append(p.out, `{"params":[`...)
	for i := 1; i <= s.Params(); i++ {
		if i > 1 {
			p.out = append(p.out, ',')
		}
		p.out = append(p.out, `{"name":`...)
		if name := s.ParamName(i); name != "" {
			p.out = proto.AppendString(p.out, name)
		} else {
			p.out = append(p.out, "null"...)
		}
		p.out = append(p.out, '}')
	}
	p.out = append(p.out, `],"cols":`...)
	p.out = appendColumns(p.out, s)
	p.out = append(p.out, `,"is_explain":`...)
	p.out = strconv.AppendBool(p.out, s.Explain())
	p.out = append(p.out, `,"is_readonly":`...)
	p.out = append(strconv.AppendBool(p.out, s.ReadOnly()), '}')
	return nil
}

// resultSink appends columns and rows to a pipeline's results.
type resultSink struct {
	pipeline *pipeline
	rows     int
}

func (r *resultSink) columns(s *sqlite.Stmt) error {
	p := r.pipeline
	p.out = append(appendColumns(append(p.out, `{"cols":`...), s), `,"rows":[`...)
	return nil
}

// row counts the answer; that a statement without rows, such as a COMMIT, is
// never what makes it too large is part of the promise.
func (r *resultSink) row(s *sqlite.Stmt) error {
	p := r.pipeline
	if r.rows++; r.rows > 1 {
		p.out = append(p.out, ',')
	}
	out, err := appendRow(p.out, s)
	if err != nil {
		return err
	}
	p.out = out
	if len(p.out) > p.limit {
		return errTooLarge
	}
	return nil
}

func appendError(b []byte, e *proto.Error) []byte {
	b = proto.AppendString(append(b, `{"message":`...), validText(e.Message))
	b = proto.AppendString(append(b, `,"code":`...), e.Code)
	return append(b, '}')
}
