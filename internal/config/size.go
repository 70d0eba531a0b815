package config

import (
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. As text it is a whole number and a unit: B, KB,
// MB, GB, TB (powers of 1000), KiB, MiB, GiB, TiB (powers of 1024), or none
// for bytes.
type Size int64

// units from the largest, so that String finds the shortest form first.
var units = []struct {
	name string
	size Size
}{
	{"TiB", 1 << 40}, {"TB", 1e12},
	{"GiB", 1 << 30}, {"GB", 1e9},
	{"MiB", 1 << 20}, {"MB", 1e6},
	{"KiB", 1 << 10}, {"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a size. Units are recognised in any case, and space may stand
// before them.
func ParseSize(text string) (Size, error) {
	digits := strings.TrimSpace(text)
	i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	unit, factor := "", Size(1)
	if i >= 0 {
		digits, unit = digits[:i], strings.TrimSpace(digits[i:])
		if factor = unitSize(unit); factor == 0 {
			return 0, wanted(text, "a size such as 256KiB")
		}
	}
	if digits == "" {
		return 0, wanted(text, "a size such as 256KiB")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/int64(factor) {
		return 0, wanted(text, "a size of less than 8EiB")
	}
	return Size(n) * factor, nil
}

func unitSize(name string) Size {
	for _, u := range units {
		if strings.EqualFold(u.name, name) {
			return u.size
		}
	}
	return 0
}

// String returns the shortest exact form, as in 256KiB, 5MB or 1023B.
func (s Size) String() string {
	if s == 0 {
		return "0B"
	}
	for _, u := range units {
		if s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return ""
}

// MarshalText returns String, for JSON and YAML.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSize, for JSON and YAML.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := ParseSize(string(text))
	if err != nil {
		return err
	}
	*s = n
	return nil
}
