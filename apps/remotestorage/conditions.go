package remotestorage

import (
	"net/http"
	"slices"
	"strings"
)

// quote makes an entity tag of a version.
func quote(version string) string { return `"` + version + `"` }

// names reports whether a list of entity tags has the version, which is "" for
// what does not exist. A tag that calls itself weak names no version, unless
// weak ones count.
func names(list []string, version string, weak bool) bool {
	if version == "" {
		return false
	}
	return slices.ContainsFunc(strings.Split(strings.Join(list, ","), ","), func(tag string) bool {
		tag = strings.TrimSpace(tag)
		if weak {
			tag = strings.TrimPrefix(tag, "W/")
		}
		return tag == "*" || tag == quote(version)
	})
}

// refuses reports whether the conditions of a change do not hold for the
// version that there is, "" for none.
func refuses(h http.Header, version string) bool {
	if list := h.Values("If-Match"); len(list) > 0 && !names(list, version, false) {
		return true
	}
	return names(h.Values("If-None-Match"), version, true)
}
