package fleettest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// The lab on two replicas, through each of its bindings, on each combination of
// stores: what one replica did the other one shows, and all of it is found
// afterwards by the commands that check stores.
func TestLab(t *testing.T) {
	t.Parallel()
	EachStores(t, func(t *testing.T, f *Fleet) {
		f.Env = append(f.Env, "DWK_FLEET_POLL_INTERVAL=200ms")
		a, b := f.Start(), f.Start()
		if who := [2]string{a.Get("whoami").Replica(), b.Get("whoami").Replica()}; who != [2]string{a.ID, b.ID} {
			t.Errorf("%v are %s and %s", who, a.ID, b.ID)
		}
		labObjects(t, a, b)
		labSQL(t, a, b)
		labBucket(t, a, b)
		labWork(t, a, b)
		if keys := f.Keys("objects/"); len(keys) < 3 {
			t.Errorf("log entries in the object store: %v", keys)
		}
		for _, args := range [][]string{{"probe"}, {"audit"}} {
			if res := f.Command(args...); res.Code != 0 {
				t.Errorf("dwk %v: %+v", args, res)
			}
		}
	})
}

// labObjects is about counters and notes, with entries in the log and in the
// object store.
func labObjects(t *testing.T, a, b *Replica) {
	t.Helper()
	var c struct{ Value int64 }
	for _, r := range []*Replica{a, b, a} {
		r.Post("counter/c/add?n=2&op=first", "").Decode(t, &c)
		r.Post("counter/c/add", "").Decode(t, &c)
	}
	if b.Get("counter/c").Decode(t, &c); c.Value != 5 {
		t.Errorf("the counter is %d", c.Value)
	}
	put := a.Do(http.MethodPut, "note/text", "one", "Content-Type", "text/plain; charset=utf-8")
	tag := put.Header.Get("ETag")
	if got := b.Get("note/text"); got.Body != "one" || got.Header.Get("ETag") != tag || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v, %v, put %v", got, got.Header, put)
	}
	if got := b.Do(http.MethodPut, "note/text", "two", "If-Match", tag); got.Status/100 != 2 {
		t.Error(got)
	}
	if got := a.Do(http.MethodPut, "note/text", "three", "If-Match", tag); got.Status != http.StatusPreconditionFailed {
		t.Error(got)
	}
	for _, r := range []*Replica{a, b, a} {
		if ans := addLarge(r, "large"); ans.Status != http.StatusOK {
			t.Fatal(ans)
		}
	}
	wantLarge(t, b, "large", 3)
}

// labSQL is about the SQL binding.
func labSQL(t *testing.T, a, b *Replica) {
	t.Helper()
	if ans := a.Post("sql", `[{"sql":"CREATE TABLE t(n INTEGER PRIMARY KEY, v)"}]`); ans.Status != http.StatusOK {
		t.Fatal(ans)
	}
	batch := func(r *Replica, last string) Answer {
		return r.Post("sql", fmt.Sprintf(`{"batch":true,"statements":[{"sql":"INSERT INTO t VALUES(?, ?)","args":[%d,"é"]},{"sql":%q}]}`, math.MaxInt64, last))
	}
	if ans := batch(a, "INSERT INTO nowhere VALUES(1)"); ans.Status == http.StatusOK {
		t.Errorf("a batch with a statement that fails: %v", ans)
	}
	if ans := batch(b, "INSERT INTO t VALUES(1, x'00ff')"); ans.Status != http.StatusOK {
		t.Errorf("nothing of the failed batch is to be there: %v", ans)
	}
	ans := a.Post("sql", `{"sql":"SELECT n, v FROM t ORDER BY n"}`)
	if want := fmt.Sprintf(`"rows":[[1,{"$bytes":"AP8="}],[%d,"é"]]`, math.MaxInt64); !strings.Contains(ans.Body, want) {
		t.Errorf("%v, want %s", ans, want)
	}
}

// labBucket is about the bucket.
func labBucket(t *testing.T, a, b *Replica) {
	t.Helper()
	const key = "bucket/d%C3%A4r/b%20%25+1"
	body := strings.Repeat("0123456789abcdef", 1<<10)
	meta := []string{"Content-Type", "text/x-y; charset=utf-8", "X-Meta-Name", url.PathEscape("日本 100%"), "If-None-Match", "*"}
	put := a.Do(http.MethodPut, key, body, meta...)
	if put.Status/100 != 2 {
		t.Fatal(put)
	}
	if ans := b.Do(http.MethodPut, key, "other", meta...); ans.Status != http.StatusPreconditionFailed {
		t.Errorf("a second one: %v", ans)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		ans := b.Do(method, key, "")
		name, err := url.PathUnescape(ans.Header.Get("X-Meta-Name"))
		if ans.Status != http.StatusOK || name != "日本 100%" || err != nil || ans.Header.Get("Content-Type") != "text/x-y; charset=utf-8" ||
			ans.Header.Get("ETag") != put.Header.Get("ETag") || ans.Header.Get("Content-Length") != fmt.Sprint(len(body)) {
			t.Errorf("%s: %d %v", method, ans.Status, ans.Header)
		}
		if method == http.MethodGet && ans.Body != body {
			t.Errorf("%d bytes", len(ans.Body))
		}
	}
	for ask, want := range map[string]string{"bytes=1-3": body[1:4], "bytes=-2": "ef", fmt.Sprintf("bytes=%d-", len(body)-1): "f"} {
		if ans := b.Do(http.MethodGet, key, "", "Range", ask); ans.Status != http.StatusPartialContent || ans.Body != want {
			t.Errorf("%s: %.60v, want %q", ask, ans, want)
		}
	}
	if ans := b.Do(http.MethodGet, key, "", "Range", "bytes=999999-"); ans.Status != http.StatusRequestedRangeNotSatisfiable {
		t.Error(ans)
	}
	for i := range 5 {
		if ans := a.Do(http.MethodPut, fmt.Sprintf("bucket/list/%d/x", i), "x"); ans.Status/100 != 2 {
			t.Error(ans)
		}
	}
	var got []string
	for cursor := ""; ; {
		var page struct {
			Objects  []struct{ Key string }
			Prefixes []string
			Cursor   string
		}
		b.Get("bucket/?limit=2&prefix=list/&delimiter=/&cursor="+url.QueryEscape(cursor)).Decode(t, &page)
		got = append(got, page.Prefixes...)
		for _, o := range page.Objects {
			got = append(got, o.Key)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if want := []string{"list/0/", "list/1/", "list/2/", "list/3/", "list/4/"}; !slices.Equal(got, want) {
		t.Errorf("listed %q", got)
	}
	for range 2 {
		if ans := b.Do(http.MethodDelete, key, ""); ans.Status != http.StatusNoContent {
			t.Error(ans)
		}
	}
	if ans := a.Get(key); ans.Status != http.StatusNotFound {
		t.Error(ans)
	}
}

// labWork is about what happens without a request.
func labWork(t *testing.T, a, b *Replica) {
	t.Helper()
	if ans := a.Post("queue/default/send?n=3", `{"n":1}`); ans.Status != http.StatusOK {
		t.Error(ans)
	}
	if ans := b.Post("queue/default/send", `{"fail":0}`); ans.Status != http.StatusOK {
		t.Error(ans)
	}
	a.setAlarm("x", 100*time.Millisecond)
	b.setAlarm("gone", time.Hour)
	if ans := a.Do(http.MethodDelete, "alarm/gone", ""); ans.Status/100 != 2 {
		t.Error(ans)
	}
	b.fired("x")
	if left := a.alarm("gone"); left.Pending != nil || len(left.Firings) > 0 {
		t.Errorf("a deleted alarm: %+v", left)
	}
	Eventually(t, "the messages are delivered", func() bool {
		seen := delivered(t, b)
		return seen[`{"n":1}`] == 3 && seen[`{"fail":0}`] == 1
	})
	Eventually(t, "the schedule runs", func() bool {
		runs, err := json.Marshal(labRuns(t, a))
		return err == nil && strings.Contains(string(runs), `"Replica":"`)
	})
}
