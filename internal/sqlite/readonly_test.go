package sqlite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a?b#c%20.db")
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b); INSERT INTO t VALUES (7, 1, randomblob(300000)), (8, 1, CAST(x'41420043' AS TEXT))"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(string) (*Conn, error){"read-only": OpenReadOnly, "immutable": OpenImmutable} {
		c, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		if !c.FileReadOnly() {
			t.Errorf("%s: the file may be written", name)
		}
		if err := c.Exec("DELETE FROM t"); err == nil {
			t.Errorf("%s: wrote", name)
		}
		c.LimitLength(100_000)
		if v, err := c.QueryText("SELECT id || octet_length(b) || typeof(b) FROM t"); v != "7300000blob" || err != nil {
			t.Errorf("%s: %q, %v", name, v, err)
		}
		_, err = c.QueryText("SELECT b FROM t")
		if e, ok := errors.AsType[*Error](err); !ok || e.Primary() != TooBig {
			t.Errorf("%s: a value over the limit: %v", name, err)
		}
		b, err := c.OpenBlob("t", "b", 7)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		for off := int64(0); off < b.Size(); off += 70_000 {
			part, err := b.Read(off, min(70_000, b.Size()-off))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, part...)
		}
		if _, err := b.Read(299_999, 2); err == nil {
			t.Errorf("%s: read over the end", name)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		c.LimitLength(1 << 30)
		s, err := c.Statement("SELECT b FROM t WHERE id = 7")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Step(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(s.Value(0).([]byte), got) {
			t.Errorf("%s: other bytes", name)
		}
		s.Done()
		if b, err = c.OpenBlob("t", "b", 8); err != nil {
			t.Fatal(err)
		} else if got, err := b.Read(1, 3); string(got) != "B\x00C" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		b.Close()
		if _, err := c.OpenBlob("t", "b", 9); err == nil {
			t.Errorf("%s: a row that does not exist", name)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed: %v", err)
	}
}
