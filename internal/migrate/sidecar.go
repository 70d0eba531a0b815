package migrate

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/davidwkeith/dwk/internal/bucket"
)

// A sidecar is the JSON object beside a body.
type sidecar struct {
	Size           int64             `json:"size"`
	ETag           string            `json:"etag"` // MD5 of the body, in hex
	Version        string            `json:"version"`
	Uploaded       string            `json:"uploaded"`
	ContentType    string            `json:"contentType,omitempty"`
	CustomMetadata map[string]string `json:"customMetadata,omitempty"`
}

// maxSidecar bounds a sidecar, in bytes.
const maxSidecar = 1 << 20

func readSidecar(path string) (s sidecar, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(io.LimitReader(f, maxSidecar+1))
	switch {
	case err != nil:
	case len(text) > maxSidecar:
		err = fmt.Errorf("over %d bytes", maxSidecar)
	default:
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("its %s file: %w", sidecarSuffix, err)
	}
	return s, nil
}

// bodyFacts are what a bucket does not keep of a sidecar, for the way back. ETag
// is that at the target: another one is another body.
type bodyFacts struct {
	ETag     string   `json:"etag"`
	Version  string   `json:"version,omitempty"`
	Uploaded string   `json:"uploaded,omitempty"`
	Untyped  bool     `json:"untyped,omitempty"`
	Names    []string `json:"names,omitempty"`
}

// factsOf are those of a sidecar.
func factsOf(s sidecar, etag string) *bodyFacts {
	b := &bodyFacts{ETag: etag, Version: s.Version, Uploaded: s.Uploaded, Untyped: s.ContentType == ""}
	for name := range s.CustomMetadata {
		if strings.ToLower(name) != name {
			b.Names = append(b.Names, name)
		}
	}
	return b
}

// restore gives a sidecar back what was kept of the one before.
func (b *bodyFacts) restore(s *sidecar) {
	if b.Untyped && s.ContentType == bucket.DefaultType {
		s.ContentType = ""
	}
	for _, name := range b.Names {
		if v, ok := s.CustomMetadata[strings.ToLower(name)]; ok {
			delete(s.CustomMetadata, strings.ToLower(name))
			s.CustomMetadata[name] = v
		}
	}
	if b.Version != "" {
		s.Version = b.Version
	}
	if b.Uploaded != "" {
		s.Uploaded = b.Uploaded
	}
}
