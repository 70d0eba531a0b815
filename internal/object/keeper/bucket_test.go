package keeper_test

import (
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/bucket"
	"github.com/davidwkeith/dwk/internal/bucket/dir"
	"github.com/davidwkeith/dwk/internal/bucket/s3"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// buckets are the kinds of buckets that a log's files may be in.
var buckets = map[string]func(t *testing.T) durable.Bucket{
	"directory": func(t *testing.T) durable.Bucket {
		b, err := dir.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	},
	"S3": func(t *testing.T) durable.Bucket {
		backend := s3mem.New()
		if err := backend.CreateBucket("things"); err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0)).Server())
		t.Cleanup(web.Close)
		b, err := s3.Open(s3.Config{
			URL: web.URL + "/things/part", Region: "us-east-1", PathStyle: "true", Timeout: time.Minute, TempDir: t.TempDir(),
			Keys: func() (string, string, error) { return "key", "secret", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return bucket.Retry(b)
	},
}

// Entries, merges and snapshots in a bucket: while a position is kept all that
// it needs is there; what is kept no longer goes, and so do its files.
func TestRetentionInBuckets(t *testing.T) {
	for name, open := range buckets {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			f := newFixtureOn(t, libsqltest.File, keeper.Config{InlineLimit: 100}, keeper.InBucket(b))
			m := f.fill("0a", 1, 50)
			was := map[uint64]string{}
			for i := range 99 {
				f.exec(m, "INSERT INTO t VALUES(?1, randomblob(3000)) ON CONFLICT DO UPDATE SET a = randomblob(3000)", i%5)
				f.commit(m, "0a", 100)
				was[m.Position().TXID] = f.sum(m)
				f.shift(2 * time.Minute)
			}
			had := len(keys(t, b))
			if had < 99 {
				t.Fatalf("%d files", had)
			}
			round := func() {
				t.Helper()
				for range 4 { // a file goes a day after its row
					f.must(f.k.Round(t.Context()))
					f.shift(25 * time.Hour)
				}
				f.must(f.k.Round(t.Context()))
			}
			f.must(f.k.Round(t.Context())) // merges, and removes nothing that is needed
			positions := 0
			for p, err := range objlog.Positions(t.Context(), f.store, "C", "0a") {
				f.must(err)
				want, ok := was[p.TXID]
				if !ok {
					continue
				}
				positions++
				if sum, err := f.materialise("0a", p.TXID); err != nil || sum != want {
					t.Errorf("position %d is not what it was: %v", p.TXID, err)
				}
			}
			if positions < 10 { // a quarter of an hour, and three full ones
				t.Errorf("%d positions are kept", positions)
			}
			round()
			var named []string
			for _, row := range f.sql(`SELECT DISTINCT ref FROM obj_log WHERE ref IS NOT NULL ORDER BY ref`) {
				named = append(named, row[0].(string))
			}
			left := keys(t, b)
			if !slices.Equal(left, named) {
				t.Errorf("files %v, rows name %v", left, named)
			}
			if len(left) == 0 || len(left) > had/10 {
				t.Errorf("%d files are left of %d", len(left), had)
			}
			last := slices.Max(slices.Collect(maps.Keys(was)))
			if sum, err := f.materialise("0a", last); err != nil || sum != was[last] {
				t.Errorf("the head is not what it was: %v", err)
			}
		})
	}
}

// keys are all keys of a bucket, in order.
func keys(t *testing.T, b durable.Bucket) (keys []string) {
	t.Helper()
	for opts := (durable.ListOptions{}); ; {
		page, err := b.List(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if opts.Cursor = page.Cursor; opts.Cursor == "" {
			return keys
		}
	}
}
