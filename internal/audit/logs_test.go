package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/keeper"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

func TestSoundStore(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a").grow(12)
		b := f.object("0b")
		b.small(3)
		f.plan(objlog.Delete{Class: "C", ID: "0b", Base: b.head, CommitID: "end", Epoch: 1}.Add)
		f.alarm("0a", time.Hour)
		f.hold("0a", 40*time.Second)
		f.set([]any{"mine"}, `{"a":1}`, 0)
		f.finds()
		_, sum := f.audit()
		if sum.Objects != 2 || sum.Rows != 13 || sum.Databases != 1 || sum.Alarms != 1 || sum.Files == 0 || sum.Entries < 6 {
			t.Errorf("%+v", sum)
		}
	})
}

// TestDamagedLogs: each fault is found, and nothing else.
func TestDamagedLogs(t *testing.T) {
	merged := func(f *fixture, o *logged) {
		f.must(f.keeper(keeper.Config{}).Compact(f.Context(), "C", o.id, 64))
	}
	for name, c := range map[string]struct {
		size   int
		before func(f *fixture, o *logged)
		sql    string
		want   string
	}{
		"row missing":       {5, nil, `DELETE FROM obj_log WHERE max_txid = 3`, "log.gap database.damaged"},
		"first row missing": {5, nil, `DELETE FROM obj_log WHERE max_txid = 1`, "log.gap database.damaged"},
		"last row missing":  {5, nil, `DELETE FROM obj_log WHERE max_txid = 5`, "log.gap database.damaged"},
		"no rows":           {2, nil, `DELETE FROM obj_log`, "log.gap database.damaged"},
		"chain":             {5, nil, `UPDATE obj_log SET pre = '8000000000000001' WHERE max_txid = 3`, "log.chain"},
		"head checksum":     {5, nil, `UPDATE obj_head SET checksum = '8000000000000001'`, "log.head database.damaged"},
		"head commit":       {5, nil, `UPDATE obj_head SET last_commit = 'x'`, "log.head"},
		"head behind":       {5, nil, `UPDATE obj_head SET txid = 4`, "log.head log.head database.damaged"},
		"head ahead":        {5, nil, `UPDATE obj_head SET txid = 6`, "log.gap database.damaged"},
		"head pages":        {5, nil, `UPDATE obj_head SET pages = 0`, "log.head"},
		"head sum no hex":   {5, nil, `UPDATE obj_head SET checksum = 'x'`, "log.head database.damaged"},
		"epoch":             {5, nil, `UPDATE obj_head SET epoch = 1000`, "store.sequence"},
		"data flipped":      {5, nil, `UPDATE obj_log SET data = CAST(substr(data, 1, 150) || x'ff00ff' || substr(data, 154) AS BLOB) WHERE max_txid = 2`, "database.damaged"},
		"data cut":          {5, nil, `UPDATE obj_log SET data = substr(data, 1, 50) WHERE max_txid = 2`, "log.row database.damaged"},
		"data lost":         {5, nil, `UPDATE obj_log SET data = NULL WHERE max_txid = 2`, "log.gap database.damaged"},
		"sum no hex":        {5, nil, `UPDATE obj_log SET post = 'xyz', pre = 'xyz' WHERE max_txid = 3`, "log.row log.chain log.chain database.damaged"},
		"no such level":     {5, nil, `UPDATE obj_log SET level = 5 WHERE max_txid = 5`, "log.row log.gap database.damaged"},
		"no head":           {5, nil, `DELETE FROM obj_head`, "log.stray"},
		"merged, row gone":  {70, merged, `DELETE FROM obj_log WHERE level = 0 AND max_txid = 30`, "log.gap"},
		"merged, chain": {130, func(f *fixture, o *logged) {
			f.must(f.keeper(keeper.Config{}).Compact(f.Context(), "C", o.id, 64))
			f.must(f.keeper(keeper.Config{}).Compact(f.Context(), "C", o.id, 128))
		}, `UPDATE obj_log SET pre = '8000000000000001' WHERE level = 1 AND max_txid = 128`, "log.chain"},
		"merged, levels":     {70, merged, `UPDATE obj_log SET commit_id = 'x' WHERE level > 0`, "log.levels log.levels"},
		"merged, wrong span": {70, merged, `UPDATE obj_log SET level = 2 WHERE level = 1`, "log.row"},
		"merged, lost":       {70, merged, `UPDATE obj_log SET data = NULL WHERE level = 1`, "log.row database.damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, libsqltest.File(t))
			o := f.object("0a")
			o.small(c.size)
			if c.before != nil {
				c.before(f, o)
			}
			f.finds()
			if f.sql(c.sql).Changes == 0 {
				t.Fatal("nothing was damaged")
			}
			f.finds(strings.Fields(c.want)...)
		})
	}
}

func TestFiles(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a")
	o.grow(8)
	var refs []string
	for _, row := range f.sql(`SELECT ref FROM obj_log WHERE ref IS NOT NULL ORDER BY max_txid`).Rows {
		refs = append(refs, row[0].(string))
	}
	if len(refs) < 2 {
		t.Fatal("nothing was offloaded")
	}
	f.sql(`INSERT INTO obj_garbage VALUES (?, 1), ('objects/x', 1)`, refs[0])
	found := f.finds("file.garbage")
	if found[0].Severity != SeverityInformation {
		t.Errorf("%+v", found)
	}
	f.sql(`DELETE FROM obj_garbage`)
	body, err := f.blobs.Get(t.Context(), refs[0])
	f.must(err)
	whole, err := io.ReadAll(body)
	f.must(errors.Join(err, body.Close()))
	f.must(f.blobs.Delete(t.Context(), refs[0]))
	f.finds("file.missing", "database.damaged")
	f.must(f.blobs.Put(t.Context(), refs[0], strings.NewReader(string(whole[:1000])), 1000))
	f.says(f.finds("file.size", "database.damaged"), FileSize, "1000|C/0a|"+refs[0])
	f.must(f.blobs.Delete(t.Context(), refs[0]))
	f.must(f.blobs.Put(t.Context(), refs[0], strings.NewReader(string(whole)), int64(len(whole))))
	other := objlog.Ref(f.storeID, "C", "0b", 3, 1)
	f.must(f.blobs.Put(t.Context(), other, strings.NewReader(string(whole)), int64(len(whole))))
	f.sql(`UPDATE obj_log SET ref = ? WHERE ref = ?`, other, refs[0])
	f.finds("file.name")
}

// TestKeptLogs: whatever a keeper makes of logs, there is nothing wrong.
func TestKeptLogs(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a")
	n := 1500
	if testing.Short() {
		n = 400
	}
	for o.head.TXID < uint64(n) {
		o.small(f.r.IntN(90))
		// Commits are spread over days, so that positions of hours are kept.
		f.sql(`UPDATE obj_log SET at = at - ?`, f.r.IntN(3_000_000))
		cfg := keeper.Config{Full: time.Duration(f.r.IntN(120)) * time.Minute, FullSize: int64(f.r.IntN(60_000)), Hourly: 24 * time.Hour}
		k := f.keeper(cfg)
		if f.r.IntN(3) > 0 {
			f.must(k.Compact(t.Context(), "C", "0a", o.head.TXID/64*64))
		}
		if f.r.IntN(3) > 0 {
			f.must(k.Round(t.Context()))
		}
		if f.finds(); t.Failed() {
			for _, row := range f.sql(`SELECT level, min_txid, max_txid, size, data IS NOT NULL FROM obj_log ORDER BY max_txid, level`).Rows {
				t.Log(row...)
			}
			return
		}
	}
}

// TestYoungRowsWithoutPages: of what retention removes, young rows stay without
// what they held. Those that held nothing look as before, and do not say that a
// commit before them is missing.
func TestYoungRowsWithoutPages(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0a")
	for o.head.TXID < 64 {
		o.small(2)
		o.commit()
	}
	f.sql(`UPDATE obj_log SET at = at - 3600000 WHERE max_txid <= 7`)
	k := f.keeper(keeper.Config{Full: time.Nanosecond, Hourly: time.Nanosecond})
	f.must(errors.Join(k.Compact(t.Context(), "C", "0a", 64), k.Trim(t.Context(), "C", "0a")))
	if n := f.sql(`SELECT count(*) FROM obj_log WHERE level = 0 AND max_txid <= 64`).Rows[0][0]; n != int64(57) {
		t.Errorf("%v young rows, want 57", n)
	}
	f.finds()
	// It is missed where nothing else leads over it.
	f.sql(`DELETE FROM obj_log WHERE level = 1`)
	f.says(f.finds("database.damaged", "log.gap"), "log.gap", "leads to commit 1")
}

// TestBusyObject: an audit beside commits and upkeep finds nothing.
func TestBusyObject(t *testing.T) {
	each(t, func(f *fixture) {
		o := f.object("0a")
		o.small(600) // more rows than one round trip reads
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			k := f.keeper(keeper.Config{Full: time.Nanosecond, FullSize: 1, Hourly: time.Nanosecond})
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				f.hold("0a", time.Millisecond)
				o.small(3)
				f.alarm("0a", time.Duration(i)*time.Second)
				if i%4 == 0 {
					if err := errors.Join(k.Compact(f.Context(), "C", "0a", o.head.TXID/64*64), k.Trim(f.Context(), "C", "0a")); err != nil {
						f.Error(err)
					}
				}
			}
		}()
		for range 10 {
			f.finds()
		}
		close(stop)
		<-done
	})
}

func TestSampleAndClass(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	for i := range 9 {
		f.object(fmt.Sprintf("%02x", i)).small(1)
	}
	f.sql(`UPDATE obj_head SET class = 'D' WHERE id = '08'`)
	f.sql(`UPDATE obj_log SET class = 'D' WHERE id = '08'`)
	f.sql(`UPDATE obj_head SET last_commit = 'x' WHERE id IN ('07', '08')`)
	for _, c := range []struct {
		o                            Options
		objects, databases, findings int64
	}{
		{Options{Sample: 3}, 9, 3, 2},
		{Options{Sample: 30}, 9, 9, 2},
		{Options{Deep: true}, 9, 9, 2},
		{Options{Deep: true, Class: "C"}, 8, 8, 1},
		{Options{Sample: 5, Class: "D"}, 1, 1, 1},
		{Options{Class: "E"}, 0, 0, 0},
	} {
		c.o.Settle = time.Millisecond
		_, sum, err := f.run(c.o)
		f.must(err)
		if sum.Objects != c.objects || sum.Databases != c.databases || sum.Findings != c.findings {
			t.Errorf("%+v: %+v", c.o, sum)
		}
	}
	found, sum, err := f.run(Options{Limit: 1, Settle: time.Millisecond})
	f.must(err)
	if len(found) != 1 || sum.Counts[LogHead] != 2 || sum.Findings != 2 {
		t.Errorf("%+v %+v", found, sum)
	}
}

// TestReadsOnly: an audit changes nothing.
func TestReadsOnly(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a").grow(6)
	f.alarm("0b", -time.Hour)
	state := func() string {
		return fmt.Sprint(f.sql(`SELECT * FROM kv ORDER BY k`).Rows, f.sql(`SELECT * FROM kv_meta`).Rows, f.sql(`SELECT * FROM obj_head`).Rows, f.sql(`SELECT count(*), sum(size) FROM obj_log`).Rows)
	}
	before := state()
	f.finds("alarm.no-object")
	if after := state(); after != before {
		t.Errorf("before %s, after %s", before, after)
	}
}

// noFiles is an object store that does not answer.
type noFiles struct{}

func (noFiles) Size(context.Context, string) (int64, error) { return 0, errors.New("no answer") }

// TestNoFiles: without the object store everything else is checked.
func TestNoFiles(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a").grow(8)
	f.alarm("0b", time.Hour)
	var found []Finding
	_, err := Run(t.Context(), Config{Store: f.store, Files: noFiles{}, StoreID: f.storeID, LeaseTTL: time.Minute}, Options{Settle: time.Millisecond}, func(x Finding) error {
		found = append(found, x)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "no answer") || len(found) != 1 || found[0].Check != AlarmNoObject {
		t.Errorf("%v %+v", err, found)
	}
}

// TestChecksAreDocumented: operators find every check by its name.
func TestChecksAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Checks {
		if !strings.Contains(string(doc), "| `"+c.Name+"` |") {
			t.Errorf("docs/operators.md does not have %s", c.Name)
		}
	}
}
