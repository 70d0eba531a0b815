package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"pgregory.net/rapid"
)

func TestBodySurvivesAnyChunking(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := New(Config{Memory: rapid.Int64Range(0, 64).Draw(t, "memory"), Dir: dir})
		defer s.Close()
		var want []byte
		for range rapid.IntRange(0, 10).Draw(t, "writes") {
			p := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "p")
			if n, err := s.Write(p); n != len(p) || err != nil {
				t.Fatalf("write: %d, %v", n, err)
			}
			want = append(want, p...)
		}
		got, err := io.ReadAll(s.Reader())
		if err != nil || !bytes.Equal(got, want) || s.Size() != int64(len(want)) {
			t.Fatalf("read %x (%v), want %x", got, err, want)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v %v", left, err)
	}
}

func TestLimit(t *testing.T) {
	s := New(Config{Memory: 4, Limit: 8, Dir: t.TempDir()})
	if _, err := s.Write([]byte("12345678")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("9")); !errors.Is(err, ErrLimit) {
		t.Fatalf("over the limit: %v", err)
	}
	if got, _ := io.ReadAll(s.Reader()); string(got) != "12345678" {
		t.Fatalf("kept %q", got)
	}
	s.Close()
	if _, err := s.Write(nil); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
	if _, err := Fill(Config{Limit: 3}, bytes.NewReader([]byte("four"))); !errors.Is(err, ErrLimit) {
		t.Fatalf("fill: %v", err)
	}
}
