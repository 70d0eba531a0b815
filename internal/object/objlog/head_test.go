package objlog_test

import (
	"testing"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/objlog"
)

// TestCommitsAreConditionalOnTheHead: on its TXID and its commit id, not on
// either alone, and not on a checksum.
func TestCommitsAreConditionalOnTheHead(t *testing.T) {
	for name, place := range libsqltest.Places {
		t.Run(name, func(t *testing.T) {
			s := kv.New(place(t).Open(t))
			if err := s.Init(t.Context(), objlog.Schema...); err != nil {
				t.Fatal(err)
			}
			commit := func(base objlog.Head, id string) (objlog.Head, bool) {
				t.Helper()
				c := objlog.Commit{Class: "C", ID: "0a", Base: base, CommitID: id, Epoch: 1, Post: 1 << 63, PageSize: 4096, Pages: 1, Data: []byte("x"), Snapshot: base.TXID == 0}
				p := kv.NewPlan()
				c.Add(p)
				head := objlog.AddHead(p, "C", "0a")
				v, err := s.Commit(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				h, err := objlog.ReadHead(v.Results[head])
				if err != nil {
					t.Fatal(err)
				}
				return h, v.OK
			}
			first, ok := commit(objlog.Head{}, "one")
			if !ok || first.TXID != 1 || first.CommitID != "one" {
				t.Fatalf("first commit: %+v %v", first, ok)
			}
			if h, ok := commit(objlog.Head{}, "again"); ok || h != first {
				t.Errorf("a second first commit: %+v %v", h, ok)
			}
			wrong := first
			wrong.CommitID = "other"
			if h, ok := commit(wrong, "two"); ok || h != first {
				t.Errorf("another commit id with the same checksum: %+v %v", h, ok)
			}
			lost := kv.NewPlan()
			objlog.Commit{Class: "C", ID: "0a", Base: first, CommitID: "lost", Epoch: 1, Post: 1<<63 | 7, PageSize: 4096, Pages: 1}.Add(lost)
			if v, err := s.Commit(t.Context(), lost); err != nil || v.OK {
				t.Errorf("a commit whose pages are nowhere: %+v %v", v, err)
			}
			second, ok := commit(first, "two")
			if !ok || second.TXID != 2 {
				t.Fatalf("second commit: %+v %v", second, ok)
			}
			if h, ok := commit(first, "three"); ok || h != second {
				t.Errorf("a stale base: %+v %v", h, ok)
			}
		})
	}
}
