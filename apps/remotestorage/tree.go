package remotestorage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// newVersion is a version that nothing has had: not by a count, which would
// begin again where a restored database left off.
func newVersion() string { return strings.ToLower(rand.Text()[:20]) }

// noFolder is the version of every folder that does not exist.
const noFolder = "empty"

const rootNode = 1

// A node is a document or folder. Its id is 0 when there is none.
type node struct {
	id       int64
	folder   bool
	version  string
	ctype    string
	size     int64
	modified int64
	blob     string
}

// child reads a node of a folder by name.
func (v *vault) child(ctx context.Context, parent int64, name string) (n node, err error) {
	for row, err := range v.db.Query(ctx, `SELECT id, folder, version, coalesce(type, ''), coalesce(size, 0), coalesce(modified, 0), coalesce(blob, '')
		FROM node WHERE parent = ? AND name = ?`, parent, name) {
		if err == nil {
			err = row.Scan(&n.id, &n.folder, &n.version, &n.ctype, &n.size, &n.modified, &n.blob)
		}
		if err != nil {
			return node{}, err
		}
	}
	return n, nil
}

// A place is where a path leads, as far as it leads anywhere.
type place struct {
	chain   []int64  // the folders that there are, the root first
	missing []string // those that there are not
	blocked bool     // by a document where the path has a folder
	node    node     // what is at the end
}

func (v *vault) find(ctx context.Context, p docPath) (at place, err error) {
	at.chain = append(at.chain, rootNode)
	for i, name := range p.folders {
		n, err := v.child(ctx, at.chain[len(at.chain)-1], name)
		if err != nil {
			return place{}, err
		}
		if n.id == 0 || !n.folder {
			at.missing, at.blocked = p.folders[i:], n.id != 0
			return at, nil
		}
		at.chain, at.node = append(at.chain, n.id), n
	}
	if !p.isFolder() {
		at.node, err = v.child(ctx, at.chain[len(at.chain)-1], p.name)
	} else if len(p.folders) == 0 {
		at.node = node{id: rootNode, folder: true}
		_, err = first(ctx, v.db, []any{&at.node.version}, `SELECT version FROM node WHERE id = ?`, rootNode)
	}
	return at, err
}

// serveStore answers a request for the store: the account must be open, and the
// token good for it.
func (v *vault) serveStore(w http.ResponseWriter, r *http.Request, escaped string) error {
	ctx := r.Context()
	open, err := v.load(ctx)
	if err != nil {
		return err
	}
	if !open {
		w.Header().Set(headerGone, "1")
		w.WriteHeader(http.StatusGone)
		return nil
	}
	p, err := parsePath(escaped)
	if err != nil {
		return err // the front door has seen to it
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if allowed, err := v.admit(w, r, p, !read); err != nil || !allowed {
		return err
	}
	switch {
	case r.Method == http.MethodPut:
		return v.put(w, r, p)
	case r.Method == http.MethodDelete:
		return v.remove(w, r, p)
	case p.isFolder():
		return v.list(w, r, p)
	default:
		return v.get(w, r, p)
	}
}

func (v *vault) get(w http.ResponseWriter, r *http.Request, p docPath) error {
	at, err := v.find(r.Context(), p)
	if err != nil {
		return err
	}
	n := at.node
	if n.id == 0 || n.folder || at.missing != nil {
		text(w, http.StatusNotFound, "not found")
		return nil
	}
	h := w.Header()
	h.Set("ETag", quote(n.version))
	h.Set("Cache-Control", "no-cache")
	if p.isPublic() {
		h.Set("Cache-Control", "no-cache, public")
	}
	if names(r.Header.Values("If-None-Match"), n.version, true) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", n.ctype)
	h.Set("Last-Modified", httpTime(n.modified))
	h.Set(headerDocument, "1")
	h.Set(headerSize, strconv.FormatInt(n.size, 10))
	if n.blob != "" {
		h.Set(headerBlob, n.blob)
		return nil
	}
	if r.Method == http.MethodHead || n.size == 0 {
		return nil
	}
	var body []byte
	if _, err := first(r.Context(), v.db, []any{&body}, `SELECT bytes FROM body WHERE node = ?`, n.id); err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

func httpTime(ms int64) string { return time.UnixMilli(ms).UTC().Format(http.TimeFormat) }

// An item describes a document or folder in a listing.
type item struct {
	ETag     string `json:"ETag"`
	Type     string `json:"Content-Type,omitempty"`
	Length   *int64 `json:"Content-Length,omitempty"`
	Modified string `json:"Last-Modified,omitempty"`
}

// list answers with a folder, item by item, however many there are.
func (v *vault) list(w http.ResponseWriter, r *http.Request, p docPath) error {
	ctx := r.Context()
	at, err := v.find(ctx, p)
	if err != nil {
		return err
	}
	version := noFolder
	if at.missing == nil {
		version = at.node.version
	}
	h := w.Header()
	h.Set("ETag", quote(version))
	h.Set("Cache-Control", "no-cache")
	if names(r.Header.Values("If-None-Match"), version, true) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/ld+json")
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.WriteString(w, `{"@context":"http://remotestorage.io/spec/folder-description","items":{`); err != nil {
		return err
	}
	if at.missing == nil {
		if err := v.listItems(ctx, w, at.chain[len(at.chain)-1]); err != nil {
			return err
		}
	}
	_, err = io.WriteString(w, "}}\n")
	return err
}

func (v *vault) listItems(ctx context.Context, w io.Writer, folder int64) error {
	separator := ""
	for row, err := range v.db.Query(ctx, `SELECT name, folder, version, coalesce(type, ''), coalesce(size, 0), coalesce(modified, 0)
		FROM node WHERE parent = ? ORDER BY name`, folder) {
		var name string
		var n node
		if err == nil {
			err = row.Scan(&name, &n.folder, &n.version, &n.ctype, &n.size, &n.modified)
		}
		if err != nil {
			return err
		}
		i := item{ETag: n.version}
		if n.folder {
			name += "/"
		} else {
			i.Type, i.Length, i.Modified = n.ctype, &n.size, httpTime(n.modified)
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		value, err := json.Marshal(i)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, separator+string(key)+":"+string(value)); err != nil {
			return err
		}
		separator = ","
	}
	return nil
}

// put stores a document whose body is in the request or, staged, in the bucket.
// All is checked before anything is written, so that a refusal writes nothing
// of it.
func (v *vault) put(w http.ResponseWriter, r *http.Request, p docPath) error {
	ctx := r.Context()
	stage := r.Header.Get(headerStage)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	size := int64(len(body))
	if stage != "" {
		if size, err = strconv.ParseInt(r.Header.Get(headerSize), 10, 64); err != nil {
			return err
		}
	}
	at, err := v.find(ctx, p)
	if err != nil {
		return err
	}
	if v.refuse(w, r, at, size) {
		return v.drop(ctx, stage)
	}
	switch stage {
	case "":
	case "begin":
		key, err := v.stage(ctx)
		w.Header().Set(headerBlob, key)
		if v.meta.quota > 0 {
			w.Header().Set(headerRoom, strconv.FormatInt(v.meta.quota-v.meta.used+at.document().size, 10))
		}
		return err
	default:
		n, err := v.exec(ctx, `DELETE FROM staged WHERE blob = ?`, stage)
		if err != nil {
			return err
		}
		if n == 0 { // collected, as the upload took longer than the grace
			w.Header().Set("Retry-After", "1")
			text(w, http.StatusServiceUnavailable, "the upload took too long; nothing was done")
			return nil
		}
	}
	old := at.document()
	if old.blob != "" {
		if err := v.orphan(ctx, old.blob); err != nil {
			return err
		}
	}
	t := r.Header.Get("Content-Type")
	if t == "" {
		t = defaultType
	}
	version := newVersion()
	if err := v.write(ctx, at, p.name, node{version: version, ctype: t, size: size, blob: stage}, body); err != nil {
		return err
	}
	w.Header().Set("ETag", quote(version))
	if old.id == 0 {
		w.WriteHeader(http.StatusCreated)
	}
	return nil
}

const quotaText = "the quota is used up"

// refuse answers when the document may not be put. A size below 0 is not known.
func (v *vault) refuse(w http.ResponseWriter, r *http.Request, at place, size int64) bool {
	switch {
	case at.blocked:
		text(w, http.StatusConflict, "there is a document where the path has a folder")
	case at.node.folder && at.missing == nil:
		text(w, http.StatusConflict, "there is a folder of that name")
	case refuses(r.Header, at.document().version):
		v.refused(w, at.document())
	case v.meta.quota > 0 && size > 0 && v.meta.used-at.document().size+size > v.meta.quota:
		text(w, http.StatusInsufficientStorage, quotaText)
	default:
		return false
	}
	return true
}

// document is the one at the end of the path, if there is one.
func (at place) document() node {
	if at.missing != nil || at.node.folder {
		return node{}
	}
	return at.node
}

func (v *vault) refused(w http.ResponseWriter, n node) {
	if n.version != "" {
		w.Header().Set("ETag", quote(n.version))
	}
	text(w, http.StatusPreconditionFailed, "the document is not what the condition asks for")
}

// write writes a document, makes the folders that are missing, and gives all of
// them above it the document's version.
func (v *vault) write(ctx context.Context, at place, name string, n node, body []byte) error {
	for _, folder := range at.missing {
		res, err := v.db.Exec(ctx, `INSERT INTO node (parent, name, folder, version) VALUES (?, ?, 1, ?)`, at.chain[len(at.chain)-1], folder, n.version)
		if err != nil {
			return err
		}
		at.chain = append(at.chain, res.LastRowID)
	}
	old := at.document()
	var blob any
	if n.blob != "" {
		blob = n.blob
	}
	id := old.id
	if id == 0 {
		res, err := v.db.Exec(ctx, `INSERT INTO node (parent, name, folder, version, type, size, modified, blob) VALUES (?, ?, 0, ?, ?, ?, ?, ?)`,
			at.chain[len(at.chain)-1], name, n.version, n.ctype, n.size, v.now(), blob)
		if err != nil {
			return err
		}
		id = res.LastRowID
	} else if _, err := v.exec(ctx, `UPDATE node SET version = ?, type = ?, size = ?, modified = ?, blob = ? WHERE id = ?`,
		n.version, n.ctype, n.size, v.now(), blob, id); err != nil {
		return err
	}
	switch {
	case n.blob == "" && n.size > 0:
		if _, err := v.exec(ctx, `INSERT INTO body VALUES (?, ?) ON CONFLICT DO UPDATE SET bytes = excluded.bytes`, id, body); err != nil {
			return err
		}
	case old.blob == "" && old.size > 0:
		if _, err := v.exec(ctx, `DELETE FROM body WHERE node = ?`, id); err != nil {
			return err
		}
	}
	return v.changed(ctx, at.chain, n.version, n.size-old.size)
}

// changed gives folders a version, and counts bytes.
func (v *vault) changed(ctx context.Context, chain []int64, version string, bytes int64) error {
	for _, id := range chain {
		if _, err := v.exec(ctx, `UPDATE node SET version = ? WHERE id = ?`, version, id); err != nil {
			return err
		}
	}
	if bytes == 0 {
		return nil
	}
	v.meta.used += bytes
	_, err := v.exec(ctx, `UPDATE meta SET used = used + ?`, bytes)
	return err
}

// remove deletes a document, and the folders that are empty without it.
func (v *vault) remove(w http.ResponseWriter, r *http.Request, p docPath) error {
	ctx := r.Context()
	at, err := v.find(ctx, p)
	if err != nil {
		return err
	}
	n := at.document()
	switch {
	case at.missing == nil && at.node.folder:
		text(w, http.StatusConflict, "that is a folder")
		return nil
	case refuses(r.Header, n.version):
		v.refused(w, n)
		return nil
	case n.id == 0:
		text(w, http.StatusNotFound, "not found")
		return nil
	}
	if _, err := v.exec(ctx, `DELETE FROM node WHERE id = ?`, n.id); err != nil {
		return err
	}
	if n.blob != "" {
		err = v.orphan(ctx, n.blob)
	} else {
		_, err = v.exec(ctx, `DELETE FROM body WHERE node = ?`, n.id)
	}
	if err != nil {
		return err
	}
	chain := at.chain
	for len(chain) > 1 {
		gone, err := v.exec(ctx, `DELETE FROM node WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM node WHERE parent = ?1)`, chain[len(chain)-1])
		if err != nil {
			return err
		}
		if gone == 0 {
			break
		}
		chain = chain[:len(chain)-1]
	}
	w.Header().Set("ETag", quote(n.version))
	return v.changed(ctx, chain, newVersion(), -n.size)
}
