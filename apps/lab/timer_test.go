package lab

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// alarmOf reads what the lab shows of an alarm.
func alarmOf(t *testing.T, h http.Handler, name string) (out struct {
	Name     string
	Pending  *int64
	Firings  []firing
	Attempts []firing
}) {
	t.Helper()
	w := send(h, "GET", "/alarm/"+name, "")
	if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return out
}

func TestTimer(t *testing.T) {
	env, h := newLab(t)
	if a := alarmOf(t, h, "tea"); a.Name != "tea" || a.Pending != nil || a.Firings == nil || a.Attempts == nil {
		t.Errorf("a new one: %+v", a)
	}
	if env.exists("Timer", "tea") {
		t.Error("a read has made the object")
	}
	before := time.Now().UnixMilli()
	if w := send(h, "POST", "/alarm/tea?in=1h&fail=2", ""); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	a := alarmOf(t, h, "tea")
	if a.Pending == nil || *a.Pending < before+3600_000 {
		t.Fatalf("%+v", a)
	}
	o := env.object("Timer", "tea")
	for n := range 3 {
		err := o.fire(durable.AlarmInfo{Due: time.UnixMilli(5), RetryCount: n})
		if (err != nil) != (n < 2) {
			t.Errorf("run %d: %v", n, err)
		}
	}
	a = alarmOf(t, h, "tea")
	if a.Pending != nil || len(a.Attempts) != 3 || len(a.Firings) != 1 || a.Firings[0] != a.Attempts[2] || a.Firings[0].Due != 5 || a.Firings[0].Retry != 2 || a.Firings[0].Replica != "r1" {
		t.Errorf("%+v", a)
	}
	send(h, "POST", "/alarm/tea?in=1h", "")
	if w := send(h, "DELETE", "/alarm/tea", ""); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if a := alarmOf(t, h, "tea"); a.Pending != nil {
		t.Errorf("deleted: %+v", a)
	}
}

func TestTimerRefused(t *testing.T) {
	_, h := newLab(t)
	for _, q := range []string{"in=soon", "in=-1s", "in=999999h", "fail=-1", "fail=x", "%"} {
		if w := send(h, "POST", "/alarm/x?"+q, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", q, w.Code, w.Body)
		}
	}
}
