package proto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// maxDepth bounds how deeply objects and lists lie in each other. The deepest
// message that means anything, conditions a hundred deep, has about 200.
const maxDepth = 500

// A scanner reads JSON once from its beginning to its end, and strictly: what it
// takes is what RFC 8259 calls JSON in texts of Unicode characters. Not taken
// are bytes that are not UTF-8 and halves of surrogate pairs. Nothing that it
// returns shares memory with in, where it does not say so.
type scanner struct {
	in     []byte
	at     int
	depth  int
	sql    sqlText // the SQL text before
	length int     // of the list of values before
}

func (s *scanner) fail(what string) error {
	if s.at >= len(s.in) {
		return errors.New("the JSON ends too early")
	}
	return fmt.Errorf("%s at byte %d", what, s.at)
}

// next passes over space and returns what follows it, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.in); s.at++ {
		switch c := s.in[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// end reports whether there is nothing more.
func (s *scanner) end() error {
	if s.next(); s.at < len(s.in) {
		return s.fail("more than one JSON value, the second")
	}
	return nil
}

// null passes over null, if that comes next.
func (s *scanner) null() bool { return s.next() == 'n' && s.word("null") }

func (s *scanner) word(w string) bool {
	if len(s.in)-s.at < len(w) || string(s.in[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

// open begins a list or object.
func (s *scanner) open(c byte) error {
	if s.next() != c {
		return s.fail(map[byte]string{'{': "no object", '[': "no list"}[c])
	}
	if s.depth++; s.depth > maxDepth {
		return s.fail("nested too deeply")
	}
	s.at++
	return nil
}

// more passes over what lies before element n of a list or object, from 0; false
// at its end.
func (s *scanner) more(n int, end byte) (bool, error) {
	switch c := s.next(); {
	case c == end:
		s.at++
		s.depth--
		return false, nil
	case n == 0:
		return true, nil
	case c != ',':
		return false, s.fail("no comma")
	}
	s.at++
	return true, nil
}

// member reads the name of member n of an object, from 0; false at its end. The
// name shares memory with in.
func (s *scanner) member(n int) (name []byte, ok bool, err error) {
	if ok, err = s.more(n, '}'); !ok {
		return nil, false, err
	}
	s.next()
	name, escaped, err := s.token()
	if err != nil {
		return nil, false, err
	}
	if escaped {
		if name, err = unescape(name); err != nil {
			return nil, false, err
		}
	}
	if s.next() != ':' {
		return nil, false, s.fail("no colon")
	}
	s.at++
	return name, true, nil
}

// list calls each at the beginning of every element of a list.
func (s *scanner) list(each func() error) error {
	if err := s.open('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		if ok, err := s.more(n, ']'); !ok {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// token returns what is between the quotes of a string, in the memory of in, and
// whether it holds escapes, which were not looked at.
func (s *scanner) token() (raw []byte, escaped bool, err error) {
	if s.at >= len(s.in) || s.in[s.at] != '"' {
		return nil, false, s.fail("no string")
	}
	s.at++
	start := s.at
	for {
		s.at += plain(s.in[s.at:])
		if s.at >= len(s.in) {
			return nil, false, s.fail("")
		}
		switch c := s.in[s.at]; {
		case c == '"':
			s.at++
			return s.in[start : s.at-1], escaped, nil
		case c == '\\':
			escaped = true
			s.at++ // what follows is plain, a quote or a backslash, or nothing that unescape takes
			if s.at < len(s.in) && (s.in[s.at] == '"' || s.in[s.at] == '\\') {
				s.at++
			}
		case c < ' ':
			return nil, false, s.fail("a control character in a string")
		default:
			for s.at < len(s.in) && s.in[s.at] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(s.in[s.at:])
				if r == utf8.RuneError && n <= 1 {
					return nil, false, s.fail("a byte that is not UTF-8")
				}
				s.at += n
			}
		}
	}
}

// text reads a string.
func (s *scanner) text() (string, error) {
	s.next()
	raw, escaped, err := s.token()
	if err == nil && escaped {
		raw, err = unescape(raw)
	}
	if err != nil {
		return "", err
	}
	return string(raw), nil
}

// number returns a number as it is written, in the memory of in.
func (s *scanner) number() ([]byte, error) {
	s.next()
	start := s.at
	digits := func() (n int) {
		for ; s.at < len(s.in) && digit(s.in[s.at]); s.at++ {
			n++
		}
		return n
	}
	if s.at < len(s.in) && s.in[s.at] == '-' {
		s.at++
	}
	zero := s.at < len(s.in) && s.in[s.at] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return nil, s.fail("no number")
	}
	if s.at < len(s.in) && s.in[s.at] == '.' {
		if s.at++; digits() == 0 {
			return nil, s.fail("no digit behind a point")
		}
	}
	if s.at < len(s.in) && s.in[s.at]|0x20 == 'e' {
		if s.at++; s.at < len(s.in) && (s.in[s.at] == '+' || s.in[s.at] == '-') {
			s.at++
		}
		if digits() == 0 {
			return nil, s.fail("no digit in an exponent")
		}
	}
	return s.in[start:s.at], nil
}

// skip passes over any value, and returns it as it is written, in the memory of
// in.
func (s *scanner) skip() (raw []byte, err error) {
	c := s.next()
	start := s.at
	switch c {
	case '{':
		if err = s.open('{'); err != nil {
			return nil, err
		}
		for n := 0; ; n++ {
			_, ok, err := s.member(n)
			if err == nil && ok {
				_, err = s.skip()
			}
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
		}
	case '[':
		err = s.list(func() error { _, err := s.skip(); return err })
	case '"':
		var escaped bool
		if raw, escaped, err = s.token(); err == nil && escaped {
			_, err = unescape(raw)
		}
	default:
		if !s.word("null") && !s.word("true") && !s.word("false") {
			_, err = s.number()
		}
	}
	if err != nil {
		return nil, err
	}
	return s.in[start:s.at], nil
}

// plain returns the number of bytes before the first one that is not ASCII, or a
// control character, a quote or a backslash.
func plain(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		// The lowest high bit that is set is that of the first such byte: what a
		// subtraction borrows it borrows from the bytes behind it.
		m := (w | (w - ' '*ones) | ((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones)) & highs
		if m != 0 {
			return n + bits.TrailingZeros64(m)/8
		}
	}
	for ; n < len(b); n++ {
		if c := b[n]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			break
		}
	}
	return n
}
