package bucket

import (
	"strings"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/durable"
)

const (
	// MaxType bounds a content type, in bytes.
	MaxType = 256
	// MaxMetadata bounds the names and values of a body's metadata together, in
	// bytes of their form in headers.
	MaxMetadata = 2048
	// MaxPage bounds the keys and prefixes of a page.
	MaxPage = 1000
)

// CheckPut refuses a bad key or bad options of a put. The options that it
// returns have a content type, and a map of their own with names in lower case.
func CheckPut(key string, opts durable.PutOptions) (durable.PutOptions, error) {
	if err := CheckKey(key); err != nil {
		return opts, err
	}
	if opts.ContentType == "" {
		opts.ContentType = DefaultType
	}
	if t := opts.ContentType; len(t) > MaxType || strings.TrimSpace(t) != t || strings.ContainsFunc(t, unprintable) {
		return opts, &InvalidError{"content type", t, "is too long or not printable ASCII"}
	}
	metadata, err := checkMetadata(opts.Metadata)
	opts.Metadata = metadata
	return opts, err
}

func checkMetadata(given map[string]string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	metadata, size := make(map[string]string, len(given)), 0
	for name, value := range given {
		lower := strings.ToLower(name)
		_, twice := metadata[lower]
		switch {
		case name == "" || strings.ContainsFunc(name, notOfName):
			return nil, &InvalidError{"metadata name", name, "is not of letters, digits, '-' and '_'"}
		case twice:
			return nil, &InvalidError{"metadata name", lower, "is there twice, in different cases"}
		case !utf8.ValidString(value):
			return nil, &InvalidError{"metadata", name, "is not UTF-8"}
		}
		metadata[lower] = value
		size += len(name) + headerLen(value)
	}
	if size > MaxMetadata {
		return nil, &InvalidError{"metadata", "", "is too large"}
	}
	return metadata, nil
}

// headerLen is the length of the value in percent-encoding, which is how text
// travels in headers.
func headerLen(value string) int {
	n := len(value)
	for i := range len(value) {
		if c := rune(value[i]); c == '%' || unprintable(c) {
			n += 2
		}
	}
	return n
}

func unprintable(c rune) bool { return c < ' ' || c > '~' }

func notOfName(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_'
}

// CheckGet refuses a bad key or bad options of a get.
func CheckGet(key string, opts durable.GetOptions) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if opts.Length < 0 {
		return &InvalidError{"length of a part of", key, "is negative"}
	}
	return nil
}

// Part returns where the chosen part of a body of size bytes begins, and its
// length.
func Part(opts durable.GetOptions, size int64) (offset, length int64) {
	offset = opts.Offset
	if offset < 0 {
		offset = max(0, size+offset)
	}
	offset = min(offset, size)
	length = size - offset
	if opts.Length > 0 {
		length = min(length, opts.Length)
	}
	return offset, length
}

// CheckList refuses bad options of a list. Those that it returns have a limit
// from 1 to [MaxPage].
func CheckList(opts durable.ListOptions) (durable.ListOptions, error) {
	if reason := textFault(opts.Prefix); reason != "" {
		return opts, &InvalidError{"prefix", opts.Prefix, reason}
	}
	if reason := textFault(opts.Delimiter); reason != "" {
		return opts, &InvalidError{"delimiter", opts.Delimiter, reason}
	}
	if opts.Limit < 0 {
		return opts, &InvalidError{"limit of a list of", opts.Prefix, "is negative"}
	}
	if opts.Limit == 0 || opts.Limit > MaxPage {
		opts.Limit = MaxPage
	}
	return opts, nil
}
