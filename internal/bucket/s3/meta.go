package s3

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
)

// metaPrefix begins the headers of metadata. It is written out because the
// client takes a name such as cache-control for the header itself.
const metaPrefix = "X-Amz-Meta-"

// noMetadata stands for no metadata: some stores keep that of the body before
// when a put has none.
const noMetadata = "dwk-none"

func putOptions(opts durable.PutOptions) minio.PutObjectOptions {
	o := minio.PutObjectOptions{ContentType: opts.ContentType}
	o.UserMetadata = make(map[string]string, len(opts.Metadata))
	if len(opts.Metadata) == 0 {
		o.UserMetadata[metaPrefix+noMetadata] = "1"
	}
	for name, value := range opts.Metadata {
		o.UserMetadata[metaPrefix+name] = encode(value)
	}
	if opts.IfAbsent {
		o.SetMatchETagExcept("*")
	}
	return o
}

// encode writes a value as printable ASCII: percent-encoding, as its length is
// counted, and of spaces where headers lose them, and of what other programs
// take for an encoding of their own.
func encode(value string) string {
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		space := c == ' ' && (i == 0 || i == len(value)-1 || value[i-1] == ' ')
		word := c == '=' && strings.HasPrefix(value[i:], "=?")
		if c < ' ' || c > '~' || c == '%' || space || word {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// decode is the inverse of encode. What others wrote may not be encoded.
func decode(value string) string {
	if text, err := url.PathUnescape(value); err == nil {
		return text
	}
	return value
}

// info describes a whole body.
func (b *Bucket) info(key string, o minio.ObjectInfo) durable.ObjectInfo {
	info := durable.ObjectInfo{Key: key, Size: o.Size, ETag: o.ETag, Uploaded: o.LastModified.UTC(), ContentType: o.ContentType}
	if info.ContentType == "" {
		info.ContentType = bucket.DefaultType
	}
	for name, value := range o.UserMetadata {
		if strings.EqualFold(name, noMetadata) {
			continue
		}
		if info.Metadata == nil {
			info.Metadata = map[string]string{}
		}
		info.Metadata[strings.ToLower(name)] = decode(value)
	}
	return info
}
