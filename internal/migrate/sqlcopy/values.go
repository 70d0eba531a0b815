package sqlcopy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/davidwkeith/dwk/internal/hrana/proto"
)

// sizeOf returns the size of a value as it is sent, and whether it cannot be an
// argument.
func sizeOf(v any) (size int64, special bool) {
	switch v := v.(type) {
	case *large:
		return v.size, true
	case string:
		return int64(len(v)) + 20, !utf8.ValidString(v)
	case float64:
		return 20, math.IsInf(v, 0)
	default:
		return int64(proto.ValueSize(v)), false
	}
}

// digest is a hash of a row, the same whether large values were read whole or
// not.
func digest(row []any) string {
	h := sha256.New()
	var buf []byte
	for _, v := range row {
		switch x := v.(type) {
		case string:
			if len(x) > wholeLimit {
				v = &large{text: true, size: int64(len(x))}
			}
		case []byte:
			if len(x) > wholeLimit {
				v = &large{size: int64(len(x))}
			}
		}
		buf = appendValue(buf[:0], v)
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// appendValue appends a form of a value that no other has; of a large one only
// its size.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case int64:
		return strconv.AppendUint(append(b, 'i'), uint64(v), 16)
	case float64:
		return strconv.AppendUint(append(b, 'f'), math.Float64bits(v), 16)
	case string:
		return append(append(strconv.AppendInt(append(b, 't'), int64(len(v)), 10), ':'), v...)
	case []byte:
		return append(append(strconv.AppendInt(append(b, 'b'), int64(len(v)), 10), ':'), v...)
	case *large:
		kind := byte('b')
		if v.text {
			kind = 't'
		}
		return append(strconv.AppendInt(append(b, kind), v.size, 10), ':')
	default:
		return fmt.Appendf(b, "%T", v)
	}
}

// show writes a value as SQL would, on one line.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		if !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }) {
			return "text " + strconv.Quote(v)
		}
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case []byte:
		return "x'" + hex.EncodeToString(v[:min(len(v), 100)]) + "'"
	case *large:
		kind := "a blob"
		if v.text {
			kind = "a text"
		}
		return fmt.Sprintf("%s of %d bytes", kind, v.size)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eIN") {
			s += ".0"
		}
		return s
	default:
		return fmt.Sprint(v)
	}
}

func showRow(row []any) string {
	var parts []string
	for _, v := range row {
		parts = append(parts, show(v))
	}
	return strings.Join(parts, ", ")
}

// short cuts a text that is shown.
func short(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
