package objlog

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/davidwkeith/dwk/internal/kv"
)

// RefPrefix begins the names of all files of one store set.
func RefPrefix(storeID string) string { return "objects/" + url.PathEscape(storeID) + "/" }

// Ref returns a new name for the file of an entry. It carries the stamp of the
// lease under which the entry will be committed, 0 for a merged entry, and is
// random, so that no name is ever wanted again.
func Ref(storeID, class, id string, maxTXID uint64, stamp kv.Versionstamp) string {
	var random [8]byte
	rand.Read(random[:])
	return fmt.Sprintf("%s%s/%s/%016x-%016x-%s.ltx", RefPrefix(storeID), url.PathEscape(class), url.PathEscape(id), maxTXID, int64(stamp), hex.EncodeToString(random[:]))
}

// A RefInfo is what the name of a file tells.
type RefInfo struct {
	StoreID, Class, ID string
	MaxTXID            uint64
	Stamp              kv.Versionstamp
}

// ParseRef reads a name; ok is false for one that Ref never made.
func ParseRef(ref string) (info RefInfo, ok bool) {
	parts := strings.Split(ref, "/")
	if len(parts) != 5 || parts[0] != "objects" {
		return RefInfo{}, false
	}
	for i, p := range []*string{&info.StoreID, &info.Class, &info.ID} {
		var err error
		if *p, err = url.PathUnescape(parts[i+1]); err != nil || url.PathEscape(*p) != parts[i+1] {
			return RefInfo{}, false
		}
	}
	name, ok := strings.CutSuffix(parts[4], ".ltx")
	words := strings.Split(name, "-")
	if !ok || len(words) != 3 {
		return RefInfo{}, false
	}
	var n [3]uint64
	for i, w := range words {
		v, err := strconv.ParseUint(w, 16, 64)
		if err != nil || len(w) != 16 || strings.ToLower(w) != w {
			return RefInfo{}, false
		}
		n[i] = v
	}
	info.MaxTXID, info.Stamp = n[0], kv.Versionstamp(n[1])
	return info, true
}
