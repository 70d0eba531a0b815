package libsql

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// Primary is a statement that a server runs at its primary, and which changes
// and locks nothing: a copy of the primary that is asked to run it passes it on
// with the whole batch that it belongs to.
const Primary = "PRAGMA data_version"

// stream reads one statement's rows by a cursor, a line at a time.
func (w *wire) stream(ctx context.Context, stmt Statement, head func([]string), yield func(Row) bool) error {
	body := appendPlain([]byte(`{"baton":null,"batch":{"steps":[`), Primary)
	body, err := appendStatement(appendCondition(body, 0), stmt)
	if err != nil {
		return refusedAt(0, err)
	}
	body = append(body, `}]}}`...)
	// The timeout is that of each wait, not of the caller's work between rows.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(w.timeout, func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	resp, err := w.post(ctx, "/v3/cursor", body)
	if err != nil {
		return err
	}
	c := cursor{wire: w, ctx: ctx, timer: timer, in: bufio.NewReaderSize(resp.Body, 64<<10)}
	defer c.close(resp)
	return c.run(head, yield)
}

// A cursor reads an answer of JSON lines: a head with the baton, and entries.
type cursor struct {
	wire  *wire
	ctx   context.Context
	timer *time.Timer
	in    *bufio.Reader
	long  []byte // the beginning of a line longer than the buffer
	baton string
	ended bool // the last entry was read
}

type entry struct {
	Type string `json:"type"`
	Cols []struct {
		Name *string `json:"name"`
	} `json:"cols"`
	Row   proto.Values `json:"row"`
	Error *proto.Error `json:"error"`
}

// run reads the entries of the two steps, and yields the rows of the second.
func (c *cursor) run(head func([]string), yield func(Row) bool) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	var first struct {
		Baton *string `json:"baton"`
	}
	if err := json.Unmarshal(line, &first); err != nil {
		return oddAnswer("%v", err)
	}
	if first.Baton != nil {
		c.baton = *first.Baton
	}
	for step, columns := 0, -1; ; {
		line, err := c.line()
		if err != nil {
			return err
		}
		var e entry
		if err := e.read(line); err != nil {
			return oddAnswer("%v", err)
		}
		switch {
		case e.Type == "step_begin" && columns < 0:
			columns = len(e.Cols)
			if step == 1 && head != nil {
				head(e.names())
			}
		case e.Type == "row" && columns >= 0 && step == 0:
		case e.Type == "step_end" && columns >= 0 && step == 0:
			step, columns = 1, -1
		case e.Type == "row" && columns >= 0:
			row, err := decodeRow(e.Row, columns)
			if err != nil {
				return oddAnswer("%v", err)
			}
			c.timer.Stop()
			if !yield(row) {
				return nil
			}
			c.timer.Reset(c.wire.timeout)
		case e.Type == "step_end" && columns >= 0:
			c.ended = true
			return nil
		case e.Type == "step_error" && e.Error != nil:
			return serverError(Failed, step-1, e.Error)
		case e.Type == "error" && e.Error != nil:
			return serverError(Failed, -1, e.Error)
		case e.Type == "replication_index":
		default:
			return oddAnswer("an entry of type %.20q in the wrong place", e.Type)
		}
	}
}

// read reads a line. Nearly all are rows in one form, which needs no general
// parser.
func (e *entry) read(line []byte) (err error) {
	if row, ok := bytes.CutPrefix(line, []byte(`{"type":"row","row":`)); ok {
		if row, ok = bytes.CutSuffix(bytes.TrimSpace(row), []byte("}")); ok {
			if e.Row, err = proto.ParseRow(row); err == nil {
				e.Type = "row"
				return nil
			}
		}
	}
	return json.Unmarshal(line, e)
}

func (e *entry) names() []string {
	if len(e.Cols) == 0 {
		return nil
	}
	names := make([]string, len(e.Cols))
	for i, c := range e.Cols {
		if c.Name != nil {
			names[i] = *c.Name
		}
	}
	return names
}

// line returns the next line, until the next call.
func (c *cursor) line() ([]byte, error) {
	c.long = c.long[:0]
	for {
		part, err := c.in.ReadSlice('\n')
		if len(c.long)+len(part) > bodyLimit {
			return nil, &Error{Outcome: Failed, Kind: KindTooLarge, Statement: 0, Err: errors.New("a row is larger than 12 MiB")}
		}
		if err == nil && len(c.long) == 0 {
			return part, nil
		}
		c.long = append(c.long, part...)
		switch {
		case err == nil:
			return c.long, nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case c.ctx.Err() != nil:
			return nil, &Error{Outcome: Unknown, Kind: KindTimeout, Statement: -1, Err: context.Cause(c.ctx)}
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		return nil, &Error{Outcome: Unknown, Kind: KindUnreachable, Statement: -1, Err: err}
	}
}

// close ends the answer and, without making the caller wait, the stream, which
// would else hold one of the server's places until it expires.
func (c *cursor) close(resp *http.Response) {
	if c.ended { // to the end of the body, which frees the connection
		io.CopyN(io.Discard, c.in, 4<<10)
	}
	c.timer.Stop()
	resp.Body.Close()
	if c.baton == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.wire.timeout)
	c.wire.closing.Go(func() {
		defer cancel()
		body := append(proto.AppendString([]byte(`{"baton":`), c.baton), `,"requests":[{"type":"close"}]}`...)
		if resp, err := c.wire.post(ctx, "/v2/pipeline", body); err == nil {
			resp.Body.Close()
		} // else the server has closed it, or will when it expires
	})
}
