package dir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// maxSidecar bounds a sidecar that is read, in bytes. Those of an older host
// may have more metadata than is accepted today.
const maxSidecar = 1 << 20

// uploadedFormat is ISO 8601 as JavaScript writes it.
const uploadedFormat = "2006-01-02T15:04:05.000Z07:00"

// sidecar is what a sidecar file holds.
type sidecar struct {
	Size           int64             `json:"size"`
	ETag           string            `json:"etag"`    // MD5 of the body, in hex
	Version        string            `json:"version"` // a UUID
	Uploaded       string            `json:"uploaded"`
	ContentType    string            `json:"contentType,omitempty"`
	CustomMetadata map[string]string `json:"customMetadata,omitempty"`

	uploaded time.Time
}

// errSidecar says that a sidecar is not what was written here.
var errSidecar = errors.New("its " + sidecarSuffix + " file is damaged")

func readSidecar(r io.Reader) (sidecar, error) {
	var s sidecar
	text, err := io.ReadAll(io.LimitReader(r, maxSidecar+1))
	if err != nil {
		return s, err
	}
	if len(text) > maxSidecar {
		return s, fmt.Errorf("%w: over %d bytes", errSidecar, maxSidecar)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%w: %w", errSidecar, err)
	}
	if s.uploaded, err = time.Parse(time.RFC3339, s.Uploaded); err != nil {
		return s, fmt.Errorf("%w: %w", errSidecar, err)
	}
	if s.Size < 0 {
		return s, fmt.Errorf("%w: negative size", errSidecar)
	}
	return s, nil
}

// temp is the name of the temporary file that is the body while it exists. It
// is empty when the sidecar was written by somebody who makes no such files.
func (s *sidecar) temp() string {
	if len(s.Version) != 36 || uuid.Validate(s.Version) != nil {
		return ""
	}
	return s.Version + tempSuffix
}

func (s *sidecar) info(key string) durable.ObjectInfo {
	contentType := s.ContentType
	if contentType == "" {
		contentType = bucket.DefaultType
	}
	return durable.ObjectInfo{
		Key: key, Size: s.Size, ETag: s.ETag, Uploaded: s.uploaded.UTC(), ContentType: contentType, Metadata: s.CustomMetadata,
	}
}
