package objectops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

func TestList(t *testing.T) {
	each(t, func(f *fixture) {
		n := listPage + 20
		f.sql(`WITH RECURSIVE b(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM b WHERE i < ?)
		INSERT INTO obj_head SELECT CASE WHEN i % 7 = 0 THEN 'D' ELSE 'C' END, printf('%04x', i), i, '8000000000000000', 'c', 4096, 2, 1, CASE WHEN i = 1 THEN 'one' END, i, i,
		CASE WHEN i % 10 = 0 THEN 5 END FROM b`, n)
		collect := func(o ListOptions) (ids []string) {
			for obj, err := range f.List(f.Context(), "C", o) {
				f.must(err)
				if obj.Bytes() != 8192 || obj.NowMs == 0 || (obj.DeletedAt != 0) != o.Deleted || (obj.Name == "one") != (obj.ID == "0001") {
					f.Errorf("%+v", obj)
				}
				ids = append(ids, obj.ID)
			}
			return ids
		}
		var live, dead []string
		for i := 1; i <= n; i++ {
			switch id := fmt.Sprintf("%04x", i); {
			case i%7 == 0:
			case i%10 == 0:
				dead = append(dead, id)
			default:
				live = append(live, id)
			}
		}
		for _, tt := range []struct {
			o    ListOptions
			want []string
		}{
			{ListOptions{}, live},
			{ListOptions{Deleted: true}, dead},
			{ListOptions{Limit: 3}, live[:3]},
			{ListOptions{Limit: 2, After: live[5]}, live[6:8]},
			{ListOptions{After: live[len(live)-1]}, nil},
			{ListOptions{Limit: len(live)}, live},
		} {
			if got := collect(tt.o); !reflect.DeepEqual(got, tt.want) {
				f.Errorf("%+v: %d, want %d", tt.o, len(got), len(tt.want))
			}
		}
		classes, err := f.Classes(f.Context())
		if err != nil || len(classes) != 2 || classes[0].Name != "C" || classes[0].Objects != int64(len(live)) || classes[0].Deleted != int64(len(dead)) || classes[0].Bytes == 0 {
			f.Errorf("%+v %v", classes, err)
		}
	})
}

func TestInfo(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(5)
		f.hold("0a", time.Minute)
		i, err := f.Info(f.Context(), "C", "0a")
		f.must(err)
		if i.TXID != 5 || i.Bytes() == 0 || len(i.Levels) != 1 || i.Levels[0].Rows != 5 || i.Levels[0].MinTXID != 1 || i.Levels[0].MaxTXID != 5 ||
			i.Levels[0].Offloaded == 0 || i.Levels[0].Bytes <= i.Levels[0].Offloaded || !i.Held || i.Lease.Replica != "r1" ||
			i.Positions != 5 || i.Oldest.TXID != 1 || i.Newest.TXID != 5 || i.NowMs == 0 {
			f.Errorf("%+v", i)
		}
		_, err = f.Info(f.Context(), "C", "0b")
		wantError(f.T, err, ErrNotFound)
	})
}

func TestHistory(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(7)
		for limit := range 10 {
			got, more, err := f.History(f.Context(), "C", "0a", limit)
			want := limit
			if limit == 0 || limit > 7 {
				want = 7
			}
			if err != nil || len(got) != want || more != (want < 7) {
				f.Fatalf("limit %d: %d %v %v", limit, len(got), more, err)
			}
			for i, p := range got {
				if p.TXID != uint64(7-i) {
					f.Errorf("limit %d: %+v at %d", limit, p, i)
				}
			}
		}
		_, _, err := f.History(f.Context(), "C", "0b", 0)
		wantError(f.T, err, ErrNotFound)
	})
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]Target{
		"41": {TXID: 41}, "15m": {Ago: 15 * time.Minute}, "2024-05-06T07:08:09Z": {Time: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)},
		"": {}, "0": {}, "-1": {}, "-5m": {}, "yesterday": {}, "2024-05-06": {}, "99999999999999999999": {},
	} {
		got, err := ParseTarget(text)
		if (err != nil) != (want == Target{}) || got.TXID != want.TXID || got.Ago != want.Ago || !got.Time.Equal(want.Time) {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(6)
		// Commits 2 to 6, a minute apart; 1 is gone, of 3 only the row is left.
		now, err := f.plain.Now(f.Context())
		f.must(err)
		f.sql(`UPDATE obj_log SET at = ? - (6 - max_txid) * 60000`, now.UnixMilli())
		f.sql(`INSERT INTO obj_log SELECT class, id, 9, 1, max_txid, pre, post, commit_id, at, size, data, ref FROM obj_log WHERE max_txid = 6`)
		for _, tt := range []struct {
			target Target
			want   uint64
		}{
			{Target{}, 6}, {Target{TXID: 6}, 6}, {Target{TXID: 2}, 2}, {Target{TXID: 7}, 0},
			{Target{Time: now}, 6}, {Target{Time: now.Add(-time.Millisecond)}, 5}, {Target{Ago: 90 * time.Second}, 4},
			{Target{Time: now.Add(-5 * time.Minute)}, 1}, {Target{Time: now.Add(-5*time.Minute - time.Millisecond)}, 0}, {Target{Ago: time.Hour}, 0},
		} {
			p, err := f.resolve(f.Context(), "C", "0a", f.headOf("0a"), tt.target)
			if p.TXID != tt.want || (err != nil) != (tt.want == 0) || err != nil && !errors.Is(err, ErrNotFound) {
				f.Errorf("%+v: %d %v", tt.target, p.TXID, err)
			}
		}
		_, err = f.resolve(f.Context(), "C", "0a", f.headOf("0a"), Target{Ago: time.Hour})
		if !strings.Contains(err.Error(), "the oldest kept is 1 of ") {
			f.Error(err)
		}
	})
}

func TestExport(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a", mirror.Config{})
		o.grow(6)
		dir := f.TempDir()
		for txid, want := range o.was {
			path := filepath.Join(dir, fmt.Sprint(txid))
			out, err := f.Export(f.Context(), "C", "0a", Target{TXID: txid}, path)
			f.must(err)
			b, err := os.ReadFile(path)
			f.must(err)
			if out.Position.TXID != txid || out.Bytes != int64(len(b)) || f.sum(func(w io.Writer) error { _, err := w.Write(b); return err }) != want {
				f.Errorf("%+v", out)
			}
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
				f.Error(st.Mode(), err)
			}
		}
		// The file is a database for others.
		db, err := libsql.Open(libsql.Config{URL: "file:" + filepath.Join(dir, "6")})
		f.must(err)
		res, err := db.Batch(f.Context(), libsql.Read, libsql.S(`SELECT count(*) FROM t`), libsql.S(`PRAGMA integrity_check`))
		f.must(err)
		f.must(db.Close())
		if res[0].Rows[0][0] == int64(0) || res[1].Rows[0][0] != "ok" {
			f.Errorf("%+v", res)
		}

		left, err := os.ReadDir(dir)
		f.must(err)
		if _, err := f.Export(f.Context(), "C", "0a", Target{}, filepath.Join(dir, "1")); err == nil {
			f.Error("a file was replaced")
		}
		f.must(os.WriteFile(filepath.Join(dir, "y-wal"), nil, 0o600))
		if _, err := f.Export(f.Context(), "C", "0a", Target{}, filepath.Join(dir, "y")); err == nil {
			f.Error("a file was put beside a WAL")
		}
		for name, target := range map[string]Target{"not kept": {TXID: 99}, "long ago": {Ago: time.Hour}} {
			_, err := f.Export(f.Context(), "C", "0a", target, filepath.Join(dir, "x"))
			if !errors.Is(err, ErrNotFound) {
				f.Errorf("%s: %v", name, err)
			}
		}
		if now, err := os.ReadDir(dir); err != nil || len(now) != len(left)+1 {
			f.Errorf("%d files, %d before: %v", len(now), len(left), err)
		}
		f.idle()
	})
}

func TestQuery(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.exec(`CREATE TABLE t(a INTEGER PRIMARY KEY, b); INSERT INTO t VALUES (1, 'x'), (9007199254740993, x'00ff'), (3, 1.0), (4, NULL)`)
	o.commit()
	d := f.open("0a", Target{})
	query := func(q string) (rows [][]any, err error) {
		for row, err := range d.Query(t.Context(), q) {
			if err != nil {
				return rows, err
			}
			rows = append(rows, row.Values)
		}
		return rows, nil
	}
	rows, err := query(`SELECT a, b FROM t ORDER BY a`)
	want := [][]any{{int64(1), "x"}, {int64(3), 1.0}, {int64(4), nil}, {int64(9007199254740993), []byte{0, 255}}}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%v %v", rows, err)
	}
	for _, q := range []string{
		`INSERT INTO t VALUES (5, 5)`, `DELETE FROM t RETURNING a`, `UPDATE t SET b = 1 WHERE a = 1 RETURNING b`, `DROP TABLE t`, `PRAGMA user_version = 7`, `BEGIN`, `VACUUM`,
		`WITH x AS (SELECT 1) INSERT INTO t SELECT 100, 1 FROM x`,
	} {
		d := f.open("0a", Target{})
		n := 0
		var failed error
		for _, err := range d.Query(t.Context(), q) {
			if failed = err; err == nil {
				n++
			}
		}
		if !errors.Is(failed, ErrWrites) || n != 0 {
			t.Errorf("%s: %d rows, %v", q, n, failed)
		}
		f.must(d.Close())
	}
	for _, q := range []string{`SELECT`, `SELECT 1; SELECT 2`, ``, `ATTACH 'x.db' AS x`, `PRAGMA journal_mode = DELETE`, `SELECT ?`} {
		if rows, err := query(q); err == nil {
			t.Errorf("%s: %v", q, rows)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, err := range d.Query(ctx, `WITH RECURSIVE b(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM b) SELECT max(i) FROM b`) {
		wantError(t, err, context.DeadlineExceeded)
	}
	if _, err := query(`SELECT count(*) FROM t`); err != nil {
		t.Error(err)
	}
}

// TestCheckLog finds whatever was changed in a log.
func TestCheckLog(t *testing.T) {
	each(t, func(f *fixture) {
		file := func() string {
			ref, _ := f.sql(`SELECT ref FROM obj_log WHERE ref IS NOT NULL`).Rows[0][0].(string)
			return ref
		}
		id := 0
		for name, change := range map[string]func(id string){
			"nothing": func(string) {},
			"a byte":  func(id string) { f.flip(id, 2) },
			"post": func(id string) {
				f.sql(`UPDATE obj_log SET post = '8000000000000001' WHERE id = ? AND max_txid = 2`, id)
			},
			"pre": func(id string) {
				f.sql(`UPDATE obj_log SET pre = '8000000000000001' WHERE id = ? AND max_txid = 5`, id)
			},
			"of no pages": func(id string) {
				f.sql(`UPDATE obj_log SET post = '8000000000000001' WHERE id = ? AND max_txid = 4`, id)
			},
			"size":             func(id string) { f.sql(`UPDATE obj_log SET size = size + 1 WHERE id = ? AND max_txid = 2`, id) },
			"a row missing":    func(id string) { f.sql(`DELETE FROM obj_log WHERE id = ? AND max_txid = 3`, id) },
			"the last missing": func(id string) { f.sql(`DELETE FROM obj_log WHERE id = ? AND max_txid = 7`, id) },
			"head":             func(id string) { f.sql(`UPDATE obj_head SET last_commit = 'x' WHERE id = ?`, id) },
			"a checksum":       func(id string) { f.sql(`UPDATE obj_log SET post = 'no' WHERE id = ? AND max_txid = 2`, id) },
			"a file missing":   func(string) { f.must(f.files.Delete(f.Context(), file())) },
			"a file cut": func(string) {
				ref := file()
				f.must(f.files.Delete(f.Context(), ref))
				f.must(f.files.Put(f.Context(), ref, strings.NewReader("LTX1"), 4))
			},
			"levels": func(id string) {
				f.sql(`INSERT INTO obj_log SELECT class, id, 9, 1, max_txid, pre, post, 'other', at, size, data, ref FROM obj_log WHERE id = ? AND max_txid = 1`, id)
			},
		} {
			id++
			o := f.object(fmt.Sprintf("%02x", id), mirror.Config{})
			f.sql(`DELETE FROM obj_log`)
			o.grow(7)
			change(o.id)
			c, err := f.CheckLog(f.Context(), "C", o.id)
			if name == "nothing" {
				if err != nil || c.Rows != 7 || c.Files == 0 || c.Bytes == 0 {
					f.Errorf("%+v %v", c, err)
				}
			} else if !errors.Is(err, ErrDamaged) {
				f.Errorf("%s: %v", name, err)
			}
		}
	})
}

// flip changes one byte of an entry.
func (f *fixture) flip(id string, txid int) {
	data, _ := f.sql(`SELECT data FROM obj_log WHERE id = ? AND max_txid = ? AND level = 0`, id, txid).Rows[0][0].([]byte)
	data[len(data)/2] ^= 1
	f.sql(`UPDATE obj_log SET data = ? WHERE id = ? AND max_txid = ? AND level = 0`, data, id, txid)
}

// TestCheckLogOfManyRows: the check goes on where a round trip ends.
func TestCheckLogOfManyRows(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.exec(`CREATE TABLE t(a)`)
	for range checkRows + 10 {
		o.exec(`INSERT INTO t VALUES (1)`)
		o.commit()
	}
	c, err := f.CheckLog(t.Context(), "C", "0a")
	if err != nil || c.Rows != checkRows+10 {
		t.Errorf("%+v %v", c, err)
	}
	f.flip("0a", checkRows+5)
	if c, err = f.CheckLog(t.Context(), "C", "0a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("%+v %v", c, err)
	}
}

// TestVerify finds what is wrong in a database whose checksums are right.
func TestVerify(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a", mirror.Config{})
	o.exec(`CREATE TABLE t(a INTEGER CHECK (a > 0)); INSERT INTO t VALUES (1)`)
	o.commit()
	d := f.open("0a", Target{})
	f.must(d.Verify(t.Context()))
	if n, err := f.Rehearse(t.Context(), d); err != nil || n == 0 {
		t.Error(n, err)
	}
	// A row that breaks its constraint, as a bug could have left it.
	path := filepath.Join(t.TempDir(), "x.db")
	if _, err := f.Export(t.Context(), "C", "0a", Target{}, path); err != nil {
		t.Fatal(err)
	}
	db, err := libsql.Open(libsql.Config{URL: "file:" + path})
	f.must(err)
	_, err = db.Batch(t.Context(), libsql.Write, libsql.S(`PRAGMA ignore_check_constraints = 1`), libsql.S(`INSERT INTO t VALUES (-1)`))
	f.must(errors.Join(err, db.Close()))
	bad, err := f.OpenFile(path)
	f.must(err)
	defer bad.Close()
	err = bad.Verify(t.Context())
	wantError(t, err, ErrDamaged)
	_, err = f.Rehearse(t.Context(), bad)
	wantError(t, err, ErrDamaged)
	_, err = f.Ops.Restore(t.Context(), Change{Class: "C", ID: "0a"}, bad)
	wantError(t, err, ErrDamaged)
	if h := f.headOf("0a"); h.TXID != 1 || h.DeletedAt != 0 {
		t.Errorf("%+v", h)
	}
}
