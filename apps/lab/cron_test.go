package lab

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

func TestCronRuns(t *testing.T) {
	env, h := newLab(t)
	runs := func() (out struct{ Runs []run }) {
		t.Helper()
		w := send(h, "GET", "/cron/runs", "")
		if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != http.StatusOK || err != nil || out.Runs == nil {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		return out
	}
	if r := runs(); len(r.Runs) != 0 {
		t.Errorf("%+v", r)
	}
	crons := App().Crons
	if len(crons) != 1 || crons[0].Name != "every-five" || crons[0].Schedule != "@every 5s" {
		t.Fatalf("%+v", crons)
	}
	env.settings = &Settings{CronSleepMs: 1}
	for n := range 2 {
		if err := crons[0].Run(t.Context(), env, durable.Occurrence{Name: "every-five", At: time.UnixMilli(int64(n) * 5000), Attempt: n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	r := runs().Runs
	if len(r) != 2 || r[1].Name != "every-five" || r[1].At != 5000 || r[1].Attempt != 2 || r[1].Replica != "r1" || r[1].Ended == nil || *r[1].Ended < r[1].Began || r[0].Began == 0 {
		t.Errorf("%+v", r)
	}
	for _, path := range []string{"/cron", "/cron/", "/cron/x", "/cron/runs/1"} {
		if w := send(h, "GET", path, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := send(h, "POST", "/cron/runs", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("%d", w.Code)
	}
}
