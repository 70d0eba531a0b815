package bucket

import (
	"strings"
	"unicode/utf8"
)

// MaxKey bounds a key, in bytes.
const MaxKey = 1024

// CheckKey refuses with an [InvalidError] what is no key. A key that passes
// names a place below the one it is joined to, as a path and as a URL.
func CheckKey(key string) error {
	if reason := keyFault(key); reason != "" {
		return &InvalidError{"key", key, reason}
	}
	return nil
}

func keyFault(key string) string {
	if key == "" {
		return "is empty"
	}
	if reason := textFault(key); reason != "" {
		return reason
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch segment {
		case "":
			return "has an empty segment"
		case ".", "..":
			return "has a segment that is a relative path"
		}
	}
	return ""
}

// textFault is about what holds for keys and for parts of keys.
func textFault(s string) string {
	switch {
	case len(s) > MaxKey:
		return "is too long"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	case strings.Contains(s, "\x00"):
		return "has a NUL byte"
	}
	return ""
}
