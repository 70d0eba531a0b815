package remotestorage

import (
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"
)

const (
	maxPath = 8 << 10 // bytes of a path, as it was sent
	maxName = 1 << 10 // bytes of a name
)

var (
	errBadPath  = errors.New("bad path")
	errLongPath = errors.New("the path is too long")
)

// A docPath names a document or a folder in a store.
type docPath struct {
	folders []string // from below the root down
	name    string   // of the document, "" for a folder
}

// parsePath reads the escaped path below a store's root. Names are what they
// are when they are not escaped, so that %7E and ~ are one.
func parsePath(escaped string) (docPath, error) {
	if len(escaped) > maxPath {
		return docPath{}, errLongPath
	}
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return docPath{}, errBadPath
	}
	names := strings.Split(rest, "/")
	for i, raw := range names {
		name, err := url.PathUnescape(raw)
		last := i == len(names)-1
		switch {
		case err != nil, !utf8.ValidString(name), strings.ContainsAny(name, "/\x00"), name == ".", name == "..", name == "" && !last:
			return docPath{}, errBadPath
		case len(name) > maxName:
			return docPath{}, errLongPath
		}
		names[i] = name
	}
	return docPath{folders: names[:len(names)-1], name: names[len(names)-1]}, nil
}

func (p docPath) isFolder() bool { return p.name == "" }

// module is the first name of a path that can be in a scope, and "" when there
// is none: the root and documents in it belong to no module, and below /public
// the next name counts.
func (p docPath) module() string {
	folders := p.folders
	if len(folders) > 0 && folders[0] == "public" {
		folders = folders[1:]
	}
	if len(folders) == 0 {
		return ""
	}
	return folders[0]
}

// isPublic reports whether anybody may read it: documents below /public are
// for whoever knows their names, and so their listings are not.
func (p docPath) isPublic() bool {
	return len(p.folders) > 0 && p.folders[0] == "public" && !p.isFolder()
}
