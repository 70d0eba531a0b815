package s3

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 5*chunkSize), rapid.SampledFrom([]int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 2 * chunkSize})).Draw(t, "size")
		limit := rapid.OneOf(rapid.IntRange(1, 5*chunkSize), rapid.SampledFrom([]int{1, chunkSize, chunkSize + 1, max(size, 1)})).Draw(t, "limit")
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(i ^ i>>8)
		}
		body := io.Reader(bytes.NewReader(text))
		if rapid.Bool().Draw(t, "odd") {
			body = iotest.DataErrReader(iotest.HalfReader(body))
		}
		var c chunks
		if err := c.read(body, int64(limit)); err != nil {
			t.Fatal(err)
		}
		want := text[:min(size, limit)]
		if c.size != int64(len(want)) {
			t.Fatalf("%d bytes, want %d", c.size, len(want))
		}
		if rest, err := io.ReadAll(body); err != nil || !bytes.Equal(rest, text[len(want):]) {
			t.Fatalf("%d bytes are left, %v", len(rest), err)
		}
		if got, err := io.ReadAll(c.reader()); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, or others, %v", len(got), err)
		}
		var got []byte
		c.each(func(p []byte) { got = append(got, p...) })
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes in pieces, or others", len(got))
		}
		from := rapid.IntRange(0, len(want)).Draw(t, "from")
		part := make([]byte, rapid.IntRange(0, 3*chunkSize).Draw(t, "part"))
		n, err := c.ReadAt(part, int64(from))
		if !bytes.Equal(part[:n], want[from:min(len(want), from+len(part))]) || (n < len(part)) != errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes from %d: %d, %v", len(part), from, n, err)
		}
		c.free()
	})
	var c chunks
	if err := c.read(iotest.ErrReader(io.ErrUnexpectedEOF), 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
