package lab

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A cell is one SQL value as JSON. An int64 is a number without a fraction,
// exact; a float64 is one with a fraction or an exponent; infinity is 9e999,
// as SQLite writes it; bytes are {"$bytes": base64}.
type cell struct{ v any }

// newCell copies what a row lends.
func newCell(v any) cell {
	if b, ok := v.([]byte); ok {
		return cell{slices.Clone(b)}
	}
	return cell{v}
}

// size is about the number of bytes that the cell takes in an answer.
func (c cell) size() int {
	switch v := c.v.(type) {
	case string:
		return len(v) + 8
	case []byte:
		return base64.StdEncoding.EncodedLen(len(v)) + 16
	default:
		return 24
	}
}

// bytesCell is how bytes look in JSON.
type bytesCell struct {
	Bytes *[]byte `json:"$bytes"`
}

// MarshalJSON writes the value.
func (c cell) MarshalJSON() ([]byte, error) {
	switch v := c.v.(type) {
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		return marshalFloat(v), nil
	case []byte:
		if v == nil {
			v = []byte{}
		}
		return json.Marshal(bytesCell{&v})
	default:
		return json.Marshal(v)
	}
}

func marshalFloat(f float64) []byte {
	switch {
	case math.IsNaN(f):
		return []byte("null") // as SQLite stores it
	case math.IsInf(f, 1):
		return []byte("9e999")
	case math.IsInf(f, -1):
		return []byte("-9e999")
	}
	b := strconv.AppendFloat(nil, f, 'g', -1, 64)
	if !bytes.ContainsAny(b, ".e") {
		b = append(b, '.', '0')
	}
	return b
}

// UnmarshalJSON reads an argument.
func (c *cell) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case 'n':
		c.v = nil
		return nil
	case 't', 'f':
		c.v = data[0] == 't'
		return nil
	case '"':
		var s string
		err := json.Unmarshal(data, &s)
		c.v = s
		return err
	case '{':
		var b bytesCell
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&b); err != nil || b.Bytes == nil {
			return errors.New(`an object as an argument must be {"$bytes": base64}`)
		}
		c.v = *b.Bytes
		return nil
	case '[':
		return errors.New("an argument must not be a list")
	}
	return c.unmarshalNumber(string(data))
}

func (c *cell) unmarshalNumber(s string) (err error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		c.v = f // out of range it is infinite, which SQLite has too
		if errors.Is(err, strconv.ErrSyntax) {
			return fmt.Errorf("bad number %q", s)
		}
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	c.v = n
	if err != nil {
		return errors.New("an integer argument does not fit into 64 bits")
	}
	return nil
}
