package sqldb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/davidwkeith/dwk/durable"
)

// Reads reports whether a statement only reads. One that no call would take is
// an error.
func Reads(text string) (bool, error) {
	reads, _, err := classify(text)
	return reads, err
}

// Split yields the statements of a script, without the semicolons at their ends
// and what is only comments. As SQLite itself does, it takes a trigger to end at
// an END between semicolons.
func Split(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s := splitter{in: bufio.NewReaderSize(r, 64<<10)}
		for {
			text, err := s.next()
			if err != nil && !errors.Is(err, io.EOF) {
				yield("", err)
				return
			}
			words := keywords(text)
			if strings.TrimSpace(text) != "" && (words.next() != "" || words.sql != "") && !yield(strings.TrimSpace(text), nil) || err != nil {
				return
			}
		}
	}
}

// A splitter reads statements.
type splitter struct {
	in   *bufio.Reader
	text strings.Builder
	// words are the first words of the statement, and last is the latest thing
	// in it: a word in upper case, or ";" or another sign.
	words  []string
	last   string
	before string // the one before last
}

// next returns a statement; with io.EOF it is the last, which may be empty.
func (s *splitter) next() (string, error) {
	s.text.Reset()
	s.words, s.last, s.before = nil, "", ""
	for {
		c, err := s.read()
		if err != nil {
			return s.text.String(), err
		}
		switch {
		case c == ';':
			if !s.trigger() || s.last == "END" && s.before == ";" {
				text := s.text.String()
				return text[:len(text)-1], nil
			}
			s.token(";")
		case c == '\'' || c == '"' || c == '`':
			err = s.until(string(c))
			s.token(string(c))
		case c == '[':
			err = s.until("]")
			s.token("[")
		case c == '-' && s.peek() == '-':
			err = s.until("\n")
		case c == '/' && s.peek() == '*':
			s.read() //nolint:errcheck // it was seen
			err = s.until("*/")
		case letter(c):
			word := []byte{c}
			for letter(s.peek()) {
				c, _ := s.read()
				word = append(word, c)
			}
			s.token(strings.ToUpper(string(word)))
		case c > ' ':
			s.token(string(c))
		}
		if err != nil {
			return s.text.String(), err
		}
	}
}

// trigger reports whether the statement creates a trigger.
func (s *splitter) trigger() bool {
	w := s.words
	if len(w) > 0 && w[0] == "EXPLAIN" {
		w = w[1:]
	}
	if len(w) < 2 || w[0] != "CREATE" {
		return false
	}
	if w[1] == "TEMP" || w[1] == "TEMPORARY" {
		w = w[1:]
	}
	return len(w) > 1 && w[1] == "TRIGGER"
}

func (s *splitter) token(t string) {
	s.before, s.last = s.last, t
	if len(s.words) < 5 {
		s.words = append(s.words, t)
	}
}

func (s *splitter) peek() byte {
	b, err := s.in.Peek(1)
	if err != nil {
		return 0
	}
	return b[0]
}

func (s *splitter) read() (byte, error) {
	c, err := s.in.ReadByte()
	if err != nil {
		return 0, err
	}
	if s.text.Len() >= MaxText {
		return 0, fmt.Errorf("a statement is over %d bytes: %w", MaxText, durable.ErrTooLarge)
	}
	s.text.WriteByte(c)
	return c, nil
}

// until reads to the end of a quoted text or comment.
func (s *splitter) until(end string) error {
	for at := 0; at < len(end); {
		c, err := s.read()
		if err != nil {
			return err
		}
		switch {
		case c == end[at]:
			at++
		case c == end[0]:
			at = 1
		default:
			at = 0
		}
	}
	return nil
}
