package object

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/davidwkeith/dwk/durable"
)

// WriteError answers a request with the status of an error of the host. A 503
// is surely not applied and safe to repeat, a 504 could not be found out, a 500
// is a failed handler. The text names no internals.
func WriteError(w http.ResponseWriter, err error) {
	h := w.Header()
	var contended *durable.ContendedError
	var body *badBodyError
	status, text := http.StatusInternalServerError, "the object's handler failed"
	switch {
	case errors.Is(err, http.ErrAbortHandler):
		panic(http.ErrAbortHandler)
	case errors.Is(err, durable.ErrHandlerFailed):
	case errors.Is(err, durable.ErrUnknownOutcome):
		status, text = http.StatusGatewayTimeout, "it could not be found out whether the request was applied"
		h.Set("Dwk-Outcome", "unknown")
	case errors.As(err, &contended):
		status, text = http.StatusServiceUnavailable, contended.Error()
	case errors.Is(err, durable.ErrOverloaded):
		status, text = http.StatusServiceUnavailable, durable.ErrOverloaded.Error()
		h.Set("Dwk-Overload", "object")
	case errors.Is(err, durable.ErrTooLarge):
		status, text = http.StatusRequestEntityTooLarge, err.Error()
	case errors.As(err, &body) && errors.Is(err, os.ErrDeadlineExceeded):
		status, text = http.StatusRequestTimeout, "the request's body came too slowly"
	case errors.As(err, &body):
		status, text = http.StatusBadRequest, "the request's body could not be read"
	case errors.Is(err, durable.ErrCycle):
		status, text = http.StatusLoopDetected, err.Error()
	case errors.Is(err, durable.ErrFenced), errors.Is(err, durable.ErrUnavailable), errors.Is(err, durable.ErrDraining),
		errors.Is(err, errTooLong), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status, text = http.StatusServiceUnavailable, notApplied(err)
	}
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

func notApplied(err error) string {
	for _, known := range []error{durable.ErrFenced, durable.ErrUnavailable, durable.ErrDraining, errTooLong} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the request was cancelled, nothing was applied"
}
