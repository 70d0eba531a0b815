package remotestorage

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

type exportRequest struct {
	After int64 `json:"after"`
}

// An exportItem is a document; Body is its body when that is not in the bucket.
type exportItem struct {
	ID       int64  `json:"id"`
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"`
	Blob     string `json:"blob,omitempty"`
	Body     []byte `json:"body,omitempty"`
}

const (
	exportStep  = 500     // documents of an answer at most
	exportBytes = 4 << 20 // bodies of an answer, about
)

// export returns the documents after one, in the order of their making, and
// none at the end.
func (v *vault) export(ctx context.Context, q exportRequest) ([]exportItem, error) {
	if open, err := v.load(ctx); err != nil || !open {
		return nil, orRefusal(err, errNoAccountRefused)
	}
	list, size := []exportItem{}, 0
	for row, err := range v.db.Query(ctx, `SELECT n.id, n.type, n.size, n.modified, coalesce(n.blob, ''), b.bytes,
		(WITH RECURSIVE up(id, parent, path) AS (
			SELECT n.id, n.parent, n.name UNION ALL SELECT f.id, f.parent, f.name || '/' || up.path FROM node f JOIN up ON f.id = up.parent)
		SELECT path FROM up WHERE id = ?)
		FROM node n LEFT JOIN body b ON b.node = n.id WHERE n.folder = 0 AND n.id > ? ORDER BY n.id LIMIT ?`, rootNode, q.After, exportStep) {
		var i exportItem
		if err == nil {
			err = row.Scan(&i.ID, &i.Type, &i.Size, &i.Modified, &i.Blob, &i.Body, &i.Path)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, i)
		if size += len(i.Body); size > exportBytes {
			break
		}
	}
	return list, nil
}

// mimeAttribute is where tar archives and file systems keep a content type.
const mimeAttribute = "SCHILY.xattr.user.mime_type"

// exportTar writes all documents of an account. Each is whole; what is changed
// meanwhile may be in it or not.
func exportTar(ctx context.Context, env durable.Env, id durable.ID, w io.Writer) (documents int, err error) {
	vs, bucket := newVaults(env), env.Bucket(bucketName)
	t := tar.NewWriter(w)
	for after := int64(0); ; {
		var list []exportItem
		if err := vs.call(ctx, id, "export", exportRequest{After: after}, &list); err != nil {
			return documents, err
		}
		if len(list) == 0 {
			return documents, t.Close()
		}
		for _, i := range list {
			if err := exportOne(ctx, t, bucket, i); err != nil {
				return documents, fmt.Errorf("export %s: %w", i.Path, err)
			}
			documents++
			after = i.ID
		}
	}
}

func exportOne(ctx context.Context, t *tar.Writer, bucket durable.Bucket, i exportItem) error {
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "." + i.Path, Size: i.Size, Mode: 0o600, ModTime: time.UnixMilli(i.Modified),
		Format: tar.FormatPAX, PAXRecords: map[string]string{mimeAttribute: i.Type},
	}); err != nil {
		return err
	}
	if i.Blob == "" {
		_, err := t.Write(i.Body)
		return err
	}
	body, _, err := bucket.Get(ctx, i.Blob, durable.GetOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(t, body)
	return err
}
