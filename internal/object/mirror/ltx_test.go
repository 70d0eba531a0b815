package mirror

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/superfly/ltx"
	"pgregory.net/rapid"
)

// A plainEntry is an entry as the tests of the format see it.
type plainEntry struct {
	header  Header
	numbers []uint32
	pages   map[uint32][]byte
}

func drawEntry(t *rapid.T) plainEntry {
	e := plainEntry{pages: map[uint32][]byte{}}
	e.header.PageSize = rapid.SampledFrom([]uint32{512, 1024, 4096, 65536}).Draw(t, "page size")
	e.header.Timestamp = rapid.Int64Min(0).Draw(t, "timestamp")
	e.header.MinTXID = 1
	if rapid.Bool().Draw(t, "snapshot") {
		e.header.Pages = rapid.Uint32Range(1, 8).Draw(t, "pages")
		for pgno := uint32(1); pgno <= e.header.Pages; pgno++ {
			e.numbers = append(e.numbers, pgno)
		}
	} else {
		e.header.MinTXID = rapid.Uint64Range(2, 1<<62).Draw(t, "min")
		e.header.Pages = rapid.Uint32Range(1, 1<<20).Draw(t, "pages")
		e.header.Pre = checksumFlag | rapid.Uint64().Draw(t, "pre")
		e.header.Post = checksumFlag | rapid.Uint64().Draw(t, "post")
		lock := lockPage(e.header.PageSize)
		e.numbers = slices.DeleteFunc(
			rapid.SliceOfNDistinct(rapid.Uint32Range(1, e.header.Pages), 0, min(8, int(e.header.Pages)), rapid.ID).Draw(t, "numbers"),
			func(pgno uint32) bool { return pgno == lock })
		slices.Sort(e.numbers)
	}
	e.header.MaxTXID = e.header.MinTXID + rapid.Uint64Range(0, 100).Draw(t, "more")
	sum := uint64(checksumFlag)
	for _, pgno := range e.numbers {
		// A repeated pattern compresses, noise does not.
		noise := rapid.SliceOfN(rapid.Byte(), 1, 600).Draw(t, "page")
		e.pages[pgno] = bytes.Repeat(noise, int(e.header.PageSize)/len(noise)+1)[:e.header.PageSize]
		sum ^= uint64(ltx.ChecksumPage(pgno, e.pages[pgno]))
	}
	if e.header.Snapshot() {
		e.header.Post = checksumFlag | sum
	}
	return e
}

// encode writes the entry with the encoder of this package.
func (e plainEntry) encode(t interface{ Fatal(...any) }) []byte {
	var out appender
	enc := newEncoder(&out)
	defer enc.release()
	err := enc.header(e.header)
	for _, pgno := range e.numbers {
		err = errors.Join(err, enc.page(pgno, e.pages[pgno]))
	}
	if err = errors.Join(err, enc.close(e.header.Post)); err != nil {
		t.Fatal(err)
	}
	return out
}

// encodeLTX writes the entry with the encoder of the LTX library.
func (e plainEntry) encodeLTX(t interface{ Fatal(...any) }) []byte {
	var out bytes.Buffer
	enc, err := ltx.NewEncoder(&out)
	if err != nil {
		t.Fatal(err)
	}
	err = enc.EncodeHeader(ltx.Header{
		Version: ltx.Version, PageSize: e.header.PageSize, Commit: e.header.Pages,
		MinTXID: ltx.TXID(e.header.MinTXID), MaxTXID: ltx.TXID(e.header.MaxTXID),
		Timestamp: e.header.Timestamp, PreApplyChecksum: ltx.Checksum(e.header.Pre),
	})
	for _, pgno := range e.numbers {
		err = errors.Join(err, enc.EncodePage(ltx.PageHeader{Pgno: pgno}, e.pages[pgno]))
	}
	enc.SetPostApplyChecksum(ltx.Checksum(e.header.Post))
	if err = errors.Join(err, enc.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFormat(t *testing.T) {
	if ltxHeaderSize != ltx.HeaderSize || ltxPageHeaderSize != ltx.PageHeaderSize || ltxTrailerSize != ltx.TrailerSize || ltxMagic != ltx.Magic {
		t.Fatal("sizes differ from those of the library")
	}
	for size := uint32(512); size <= 65536; size *= 2 {
		if lockPage(size) != ltx.LockPgno(size) {
			t.Errorf("lock page for %d is %d, want %d", size, lockPage(size), ltx.LockPgno(size))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		data := e.encode(t)
		if !bytes.Equal(data, e.encodeLTX(t)) {
			t.Fatal("the library writes another file")
		}

		dec := ltx.NewDecoder(bytes.NewReader(data))
		if err := dec.DecodeHeader(); err != nil {
			t.Fatal(err)
		}
		page := make([]byte, e.header.PageSize)
		for _, pgno := range e.numbers {
			var ph ltx.PageHeader
			if err := dec.DecodePage(&ph, page); err != nil || ph.Pgno != pgno || !bytes.Equal(page, e.pages[pgno]) {
				t.Fatalf("page %d: the library reads page %d, %v", pgno, ph.Pgno, err)
			}
		}
		if err := dec.DecodePage(new(ltx.PageHeader), page); err != io.EOF {
			t.Fatal(err)
		}
		if err := dec.Close(); err != nil {
			t.Fatal(err)
		}
		if uint64(dec.Trailer().PostApplyChecksum) != e.header.Post {
			t.Fatal("post checksum")
		}

		var numbers []uint32
		h, err := verifyEntry(data, func(pgno uint32, page []byte) error {
			numbers = append(numbers, pgno)
			if !bytes.Equal(page, e.pages[pgno]) {
				t.Fatalf("page %d differs", pgno)
			}
			return nil
		})
		if err != nil || h != e.header || !slices.Equal(numbers, e.numbers) {
			t.Fatalf("decoded %+v %v, %v", h, numbers, err)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	page := bytes.Repeat([]byte("page"), 128)
	sum := pageSum(1, page)
	snapshot := plainEntry{
		header:  Header{PageSize: 512, Pages: 1, MinTXID: 1, MaxTXID: 1, Post: checksumFlag | sum},
		numbers: []uint32{1}, pages: map[uint32][]byte{1: page, 2: page, 3: page},
	}
	if _, err := Inspect(snapshot.encode(t)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(e *plainEntry){
		"page size":            func(e *plainEntry) { e.header.PageSize = 500 },
		"no TXID":              func(e *plainEntry) { e.header.MinTXID = 0 },
		"TXIDs swapped":        func(e *plainEntry) { e.header.MinTXID, e.header.Pre = 2, checksumFlag },
		"snapshot with pre":    func(e *plainEntry) { e.header.Pre = checksumFlag | 1 },
		"delta without pre":    func(e *plainEntry) { e.header.MinTXID, e.header.MaxTXID = 2, 2 },
		"no post":              func(e *plainEntry) { e.header.Post = 0 },
		"wrong post":           func(e *plainEntry) { e.header.Post ^= 2 },
		"too many pages":       func(e *plainEntry) { e.header.Pages = 0xffffffff },
		"page beyond the end":  func(e *plainEntry) { e.numbers = []uint32{1, 2} },
		"page missing":         func(e *plainEntry) { e.header.Pages = 3; e.numbers = []uint32{1, 3} },
		"last page missing":    func(e *plainEntry) { e.header.Pages = 2 },
		"no page":              func(e *plainEntry) { e.numbers = nil },
		"pages out of order":   func(e *plainEntry) { e.header.Pages = 2; e.numbers = []uint32{2, 1} },
		"page twice":           func(e *plainEntry) { e.numbers = []uint32{1, 1} },
		"page of another size": func(e *plainEntry) { e.pages = map[uint32][]byte{1: page[:256]} },
	} {
		e := snapshot
		change(&e)
		if _, err := Inspect(e.encode(t)); !errors.Is(err, ErrBadEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lock := plainEntry{
		header:  Header{PageSize: 512, Pages: lockPage(512) + 1, MinTXID: 2, MaxTXID: 2, Pre: checksumFlag, Post: checksumFlag},
		numbers: []uint32{lockPage(512)}, pages: map[uint32][]byte{lockPage(512): page},
	}
	if _, err := Inspect(lock.encode(t)); !errors.Is(err, ErrBadEntry) {
		t.Errorf("lock page: %v", err)
	}
}

// TestHugeSize: a size field must not make the decoder allocate what it says.
func TestHugeSize(t *testing.T) {
	m := newMirror(t, Config{})
	exec(t, m, "CREATE TABLE t(a)")
	e := commit(t, m)
	copy(e.Data[ltxHeaderSize+ltxPageHeaderSize:], []byte{0xff, 0xff, 0xff, 0xff})
	allocated := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := Inspect(e.Data); !errors.Is(err, ErrBadEntry) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 64<<10 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// fuzzSeeds adds two entries of one database.
func fuzzSeeds(f *testing.F) (first, second *Entry) {
	m := newMirror(f, Config{PageSize: 512})
	exec(f, m, "CREATE TABLE t(a)")
	first = commit(f, m)
	exec(f, m, "INSERT INTO t VALUES('x')")
	second = commit(f, m)
	f.Add(first.Data)
	f.Add(second.Data)
	f.Add(first.Data[:ltxHeaderSize])
	f.Add([]byte{})
	return first, second
}

// FuzzInspect: what is accepted, the LTX library accepts too.
func FuzzInspect(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Inspect(data); err == nil {
			if err := ltx.NewDecoder(bytes.NewReader(data)).Verify(); err != nil {
				t.Errorf("accepted, the library says: %v", err)
			}
		} else if !errors.Is(err, ErrBadEntry) {
			t.Error(err)
		}
	})
}

// FuzzApply: an entry fits, or nothing is left of the mirror.
func FuzzApply(f *testing.F) {
	first, _ := fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newMirror(t, Config{})
		if err := m.Apply(first.Data); err != nil {
			t.Fatal(err)
		}
		switch err := m.Apply(data); {
		case err == nil:
			if m.Position().TXID <= first.Post.TXID {
				t.Errorf("applied, position %s", m.Position())
			}
			if err := m.Verify(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, ErrDiscarded):
			t.Error(err)
		default:
			if _, err := os.Stat(m.path); !errors.Is(err, os.ErrNotExist) {
				t.Error("refused, the file is still there")
			}
		}
	})
}
