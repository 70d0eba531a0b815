package object

import (
	"net/http"
	"testing"
	"time"
)

// An event that deletes its alarm twice has deleted it.
func TestDeleteAlarmTwice(t *testing.T) {
	f := newFleet(t)
	a := f.alarmist("a")
	a.set(t, "x", time.Hour)
	a.ask(t, "x", "/delete", handlers{"/delete": func(o *funcObject, _ http.ResponseWriter, _ *http.Request) {
		if err := o.state.DeleteAlarm(); err != nil {
			t.Error(err)
		}
		if err := o.state.DeleteAlarm(); err != nil {
			t.Error(err)
		}
		if at, ok := o.state.Alarm(); ok {
			t.Errorf("the event sees the alarm again, at %s", at)
		}
	}})
	if s := a.slot(t, "x"); s.Set {
		t.Errorf("deleted twice: %+v", s)
	}
}
