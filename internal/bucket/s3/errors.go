package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
)

// failure gives an error of the client the meaning that callers know, with what
// was done. changes: the request may have been executed.
func failure(what, key string, err error, changes bool) error {
	return fmt.Errorf("%s %q: %w", what, key, meaning(err, changes))
}

func meaning(err error, changes bool) error {
	if e, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return answered(e, changes)
	}
	refused := false
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		refused = true
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL
	}
	switch {
	case errors.Is(err, context.Canceled) && !changes:
		return err
	case changes && !refused:
		return fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, err)
	default:
		return fmt.Errorf("%w: %w", durable.ErrUnavailable, err)
	}
}

// answered is the meaning of an answer of the store.
func answered(e minio.ErrorResponse, changes bool) error {
	text := e.Error()
	if e.Code != "" && e.Code != text {
		text = e.Code + ": " + text
	}
	err := errors.New(text)
	switch e.Code {
	case minio.NoSuchBucket:
		return fmt.Errorf("%w: the bucket does not exist", durable.ErrUnavailable)
	case minio.NoSuchKey, "NotFound":
		return durable.ErrNotFound
	case minio.AccessDenied, "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed":
		return fmt.Errorf("%w: %w", durable.ErrUnavailable, err)
	case minio.PreconditionFailed:
		return durable.ErrPrecondition
	case "KeyTooLongError", "XMinioInvalidObjectName", "InvalidObjectName", "MetadataTooLarge", "ExistingObjectIsDirectory", "ObjectParentIsFile", "XMinioParentIsObject", "XMinioObjectExistsAsDirectory":
		return fmt.Errorf("%w: %w", durable.ErrInvalid, err)
	case minio.EntityTooLarge:
		return fmt.Errorf("%w: %w", durable.ErrTooLarge, err)
	}
	switch s := e.StatusCode; {
	case s == http.StatusNotFound && e.Code == "":
		return durable.ErrNotFound
	case s == http.StatusPreconditionFailed:
		return durable.ErrPrecondition
	case s == http.StatusForbidden, s == http.StatusUnauthorized, s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable, e.Code == "SlowDown":
		return fmt.Errorf("%w: %w", durable.ErrUnavailable, err)
	case s >= 500 && changes:
		return fmt.Errorf("%w: %w", durable.ErrUnknownOutcome, err)
	case s >= 500:
		return fmt.Errorf("%w: %w", durable.ErrUnavailable, err)
	}
	return err
}

func isStatus(err error, status int) bool {
	e, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && e.StatusCode == status
}
