package keeper_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/mirror"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Blobs are files in memory.
type blobs struct {
	mu    sync.Mutex
	files map[string][]byte
	// crash makes Put fail once it has stored the file.
	crash   bool
	deleted []string
}

var errCrash = errors.New("crash")

func (b *blobs) Put(_ context.Context, ref string, r io.Reader, size int64) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.files[ref]; ok {
		return fmt.Errorf("%s is there already", ref)
	}
	if int64(len(data)) != size {
		return fmt.Errorf("%d bytes, want %d", len(data), size)
	}
	b.files[ref] = data
	if b.crash {
		return errCrash
	}
	return nil
}

func (b *blobs) Get(_ context.Context, ref string) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.files[ref]
	if !ok {
		return nil, fmt.Errorf("%s: %w", ref, os.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (b *blobs) Delete(_ context.Context, ref string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.files, ref)
	b.deleted = append(b.deleted, ref)
	return nil
}

// List returns few names at a time.
func (b *blobs) List(_ context.Context, prefix, cursor string) (refs []string, next string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(b.files)) {
		if strings.HasPrefix(n, prefix) && n > cursor {
			if refs = append(refs, n); len(refs) == 5 {
				return refs, n, nil
			}
		}
	}
	return refs, "", nil
}

const storeID = "5d1c"

// A fixture is a store set with a keeper.
type fixture struct {
	testing.TB
	db       *libsql.DB
	recorder *recorder // what the store runs on
	store    *kv.Store
	blobs    *blobs
	files    keeper.Blobs // what the keeper has: blobs, or a bucket
	k        *keeper.Keeper
	keeper.Reader
	seq int
}

func newFixture(t testing.TB, place func(testing.TB) libsqltest.Place, cfg keeper.Config) *fixture {
	t.Helper()
	return newFixtureOn(t, place, cfg, nil)
}

// newFixtureOn is newFixture with files elsewhere than in memory.
func newFixtureOn(t testing.TB, place func(testing.TB) libsqltest.Place, cfg keeper.Config, files keeper.Blobs) *fixture {
	t.Helper()
	db := place(t).Open(t)
	rec := &recorder{DB: db, seen: map[string]libsql.Statement{}}
	f := &fixture{TB: t, db: db, recorder: rec, store: kv.New(rec), blobs: &blobs{files: map[string][]byte{}}, files: files}
	if files == nil {
		f.files = f.blobs
	}
	if err := f.store.Init(t.Context(), objlog.Schema...); err != nil {
		t.Fatal(err)
	}
	cfg.StoreID, cfg.Dir = storeID, t.TempDir()
	f.k = keeper.New(cfg, f.store, f.files, slog.New(slog.DiscardHandler))
	f.Reader = keeper.Reader{Store: f.store, Blobs: f.files, Dir: cfg.Dir}
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) sql(query string, args ...any) [][]any {
	f.Helper()
	r, err := f.db.Batch(f.Context(), libsql.Write, libsql.S(query, args...))
	f.must(err)
	return r[0].Rows
}

func (f *fixture) count(query string, args ...any) int {
	f.Helper()
	return int(f.sql(query, args...)[0][0].(int64))
}

// shift makes everything older.
func (f *fixture) shift(d time.Duration) {
	f.Helper()
	ms := d.Milliseconds()
	_, err := f.db.Batch(f.Context(), libsql.Write,
		libsql.S(`UPDATE obj_log SET at = at - ?`, ms),
		libsql.S(`UPDATE obj_head SET created_at = created_at - ?1, updated_at = updated_at - ?1, deleted_at = deleted_at - ?1`, ms),
		libsql.S(`UPDATE obj_garbage SET at = at - ?`, ms))
	f.must(err)
}

func (f *fixture) head(id string) objlog.Head {
	f.Helper()
	res, err := f.store.Decide(f.Context(), objlog.HeadStatement("C", id))
	f.must(err)
	h, err := objlog.ReadHead(res[0])
	f.must(err)
	return h
}

func (f *fixture) commitID() string {
	f.seq++
	return fmt.Sprint("commit ", f.seq)
}

func (f *fixture) mirror(cfg mirror.Config) *mirror.Mirror {
	m := mirror.New(filepath.Join(f.TempDir(), "object.db"), cfg)
	f.Cleanup(func() { m.Discard() })
	return m
}

func (f *fixture) exec(m *mirror.Mirror, query string, args ...any) {
	f.Helper()
	if _, err := m.Exec(f.Context(), query, args...); err != nil {
		f.Fatalf("%.80s: %v", query, err)
	}
}

// commit commits what was changed in the mirror, offloaded when it is larger
// than the limit.
func (f *fixture) commit(m *mirror.Mirror, id string, limit int64) bool {
	f.Helper()
	e, err := m.Capture()
	f.must(err)
	if e == nil {
		return false
	}
	defer e.Close()
	c := objlog.Commit{
		Class: "C", ID: id, Base: f.head(id), CommitID: f.commitID(), Epoch: 1,
		Post: e.Post.Checksum, PageSize: e.PageSize, Pages: e.Pages, Data: e.Data,
	}
	c.Snapshot = c.Base.Checksum == 0
	if c.Data == nil {
		c.Data, err = io.ReadAll(e.Open())
		f.must(err)
	}
	if e.Size > limit {
		c.Ref, c.Size, c.Data = objlog.Ref(storeID, "C", id, c.TXID(), 1), e.Size, nil
		f.must(f.files.Put(f.Context(), c.Ref, e.Open(), e.Size))
	}
	f.apply(c.Add)
	f.must(m.Confirm(e.Post))
	return true
}

// apply commits a plan that must pass.
func (f *fixture) apply(adds ...func(*kv.Plan)) {
	f.Helper()
	p := kv.NewPlan()
	for _, add := range adds {
		add(p)
	}
	v, err := f.store.Commit(f.Context(), p)
	f.must(err)
	if !v.OK {
		f.Fatal("refused")
	}
}

// empty commits without pages.
func (f *fixture) empty(id string) {
	f.Helper()
	h := f.head(id)
	f.apply(objlog.Commit{Class: "C", ID: id, Base: h, CommitID: f.commitID(), Epoch: 1, Post: h.Checksum, PageSize: h.PageSize, Pages: h.Pages}.Add)
}

// burst adds many commits without pages to a log that has a head.
func (f *fixture) burst(id string, n int) {
	f.Helper()
	f.seq++
	_, err := f.db.Batch(f.Context(), libsql.Write,
		libsql.S(`INSERT INTO obj_log(class, id, level, min_txid, max_txid, pre, post, commit_id, at, size)
		WITH RECURSIVE b(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM b WHERE i < ?3)
		SELECT class, id, 0, txid + i, txid + i, checksum, checksum, ?4 || i, `+kv.Now+`, 0 FROM obj_head CROSS JOIN b WHERE class = ?1 AND id = ?2`,
			"C", id, n, fmt.Sprint("burst ", f.seq, "-")),
		libsql.S(`UPDATE obj_head SET txid = txid + ?3, last_commit = ?4 || ?3 WHERE class = ?1 AND id = ?2`, "C", id, n, fmt.Sprint("burst ", f.seq, "-")))
	f.must(err)
}

// sum is the hash of the mirror's database as Materialise would write it, ""
// when there is none.
func (f *fixture) sum(m *mirror.Mirror) string {
	f.Helper()
	h := sha256.New()
	err := m.Export(h)
	if errors.Is(err, mirror.ErrNoDatabase) {
		return ""
	}
	f.must(err)
	return string(h.Sum(nil))
}

func (f *fixture) materialise(id string, txid uint64) (string, error) {
	h := sha256.New()
	_, err := f.Materialise(f.Context(), "C", id, txid, h)
	if errors.Is(err, mirror.ErrNoDatabase) {
		return "", nil
	}
	return string(h.Sum(nil)), err
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// readTail reads the entries behind a position as an acquire does.
func readTail(ctx context.Context, s *kv.Store, id string, have uint64) ([]objlog.Entry, error) {
	p := kv.NewPlan()
	i := objlog.AddTail(p, "C", id, have)
	v, err := s.Commit(ctx, p)
	if err != nil {
		return nil, err
	}
	return objlog.ReadEntries(v.Results[i])
}
