package objectops

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/alarm"
	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
	"github.com/davidwkeith/dwk/internal/object/mirror"
)

func (f *fixture) plan(add func(p *kv.Plan)) {
	f.Helper()
	p := kv.NewPlan()
	add(p)
	v, err := f.plain.Commit(f.Context(), p)
	f.must(err)
	if !v.OK {
		f.Fatal("refused")
	}
}

func (f *fixture) alarmOf(id string) AlarmState {
	f.Helper()
	s, err := New(Config{Store: f.plain}).AlarmState(f.Context(), "C", id)
	f.must(err)
	return s
}

// agree fails when slots and due index differ.
func (f *fixture) agree() {
	f.Helper()
	want, got := map[string]string{}, map[string]string{}
	for e, err := range f.plain.List(f.Context(), kv.ListOptions{Prefix: tuple.Key{alarm.SlotPrefix}}) {
		f.must(err)
		want[fmt.Sprint(e.Key[2])] = string(e.Value)
	}
	for e, err := range f.plain.List(f.Context(), kv.ListOptions{Prefix: tuple.Key{alarm.DuePrefix}}) {
		f.must(err)
		got[fmt.Sprint(e.Key[3])] = string(e.Value)
		if !strings.Contains(string(e.Value), fmt.Sprintf(`"epochMs":%.0f`, e.Key[2])) {
			f.Errorf("%s has the value %s", e.Key, e.Value)
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(got) {
		f.Errorf("slots %v, index %v", want, got)
	}
}

func TestChangeAlarm(t *testing.T) {
	each(t, func(f *fixture) {
		f.object("0a", mirror.Config{}).grow(1)
		c := AlarmChange{Class: "C", ID: "0a"}
		_, err := f.CancelAlarm(t.Context(), c)
		wantError(t, err, ErrNotFound)
		_, err = f.RetryAlarm(t.Context(), c)
		wantError(t, err, ErrNotFound)
		at := time.UnixMilli(4000000000000)
		out, err := f.SetAlarm(t.Context(), c, at)
		f.must(err)
		if out.Before.Set || !out.After.Set || out.After.EpochMs != at.UnixMilli() || out.After.Due() {
			t.Errorf("%+v", out)
		}
		f.agree()
		out, err = f.SetAlarmIn(t.Context(), c, time.Hour)
		f.must(err)
		if in := out.After.EpochMs - out.After.NowMs; out.Before.EpochMs != at.UnixMilli() || in > 3600_000 || in < 3500_000 {
			t.Errorf("%+v", out)
		}
		f.agree()
		out, err = f.RetryAlarm(t.Context(), c)
		f.must(err)
		if !out.After.Due() || out.After.Asked() != out.Before.EpochMs {
			t.Errorf("%+v", out)
		}
		f.agree()
		out, err = f.CancelAlarm(t.Context(), c)
		f.must(err)
		if !out.Before.Set || out.After.Set || f.alarmOf("0a").Set {
			t.Errorf("%+v", out)
		}
		f.agree()
		_, err = f.SetAlarm(t.Context(), c, time.UnixMilli(1<<50))
		wantError(t, err, durable.ErrInvalid)
		if h := f.headOf("0a"); h.TXID != 1 {
			t.Errorf("the head has moved to %d", h.TXID)
		}
		f.idle()
	})
}

// TestRetryDeadAlarm: what was given up runs again, as if for the first time, and
// its letter is gone.
func TestRetryDeadAlarm(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a", mirror.Config{}).grow(1)
	h := f.hold("0a", time.Minute)
	f.plan(func(p *kv.Plan) {
		alarm.AddSet(p, "C", "0a", time.UnixMilli(1700000000000))
		alarm.AddClaim(p, h, nil)
		alarm.AddDead(p, h, "bad")
		h.AddRelease(p)
	})
	out, err := f.RetryAlarm(t.Context(), AlarmChange{Class: "C", ID: "0a"})
	f.must(err)
	if out.Before.Set || out.Before.Dead == nil || out.Before.Dead.Error != "bad" || out.After.Dead != nil || !out.After.Due() || out.After.Asked() != 1700000000000 || out.After.RetryCount != 0 {
		t.Errorf("%+v", out)
	}
	f.agree()
}

// TestAlarmWithoutObject is left alone: nobody would run it, and it may be an
// older host's.
func TestAlarmWithoutObject(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	o := f.object("0b", mirror.Config{})
	o.grow(1)
	_, err := f.Delete(t.Context(), Change{Class: "C", ID: "0b"})
	f.must(err)
	for _, id := range []string{"0a", "0b"} {
		f.plan(func(p *kv.Plan) { alarm.AddSet(p, "C", id, time.UnixMilli(1700000000000)) })
		before := f.alarmOf(id)
		c := AlarmChange{Class: "C", ID: id}
		for _, change := range []func() (AlarmChanged, error){
			func() (AlarmChanged, error) { return f.SetAlarmIn(t.Context(), c, time.Hour) },
			func() (AlarmChanged, error) { return f.CancelAlarm(t.Context(), c) },
			func() (AlarmChanged, error) { return f.RetryAlarm(t.Context(), c) },
		} {
			_, err := change()
			wantError(t, err, ErrNotFound)
		}
		if !before.same(f.alarmOf(id)) {
			t.Errorf("%+v", f.alarmOf(id))
		}
		f.idle()
	}
}

// TestChangeAlarmOfBusyObject waits for the lease, or fails.
func TestChangeAlarmOfBusyObject(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	f.object("0a", mirror.Config{}).grow(1)
	h := f.hold("0a", time.Minute)
	_, err := f.SetAlarmIn(t.Context(), AlarmChange{Class: "C", ID: "0a"}, time.Hour)
	if _, ok := errors.AsType[*durable.ContendedError](err); !ok {
		t.Error(err)
	}
	if f.alarmOf("0a").Set {
		t.Error("the alarm of an object that another holds was set")
	}
	if _, err := h.Release(t.Context(), f.plain); err != nil {
		t.Fatal(err)
	}
	shown := f.alarmOf("0a")
	f.plan(func(p *kv.Plan) { alarm.AddSetIn(p, "C", "0a", time.Hour) })
	_, err = f.SetAlarmIn(t.Context(), AlarmChange{Class: "C", ID: "0a", Expect: &shown}, time.Minute)
	wantError(t, err, ErrChanged)
}

// TestChangeAlarmLostAnswers: whatever becomes of an answer, the error tells
// what became of the change.
func TestChangeAlarmLostAnswers(t *testing.T) {
	isCommit := func(stmts []libsql.Statement) bool {
		for _, s := range stmts {
			if strings.Contains(s.SQL, "'$.was'") {
				return true
			}
		}
		return false
	}
	once := func(then func() error) func([]libsql.Statement) error {
		done := false
		return func(stmts []libsql.Statement) error {
			if done || !isCommit(stmts) {
				return nil
			}
			done = true
			return then()
		}
	}
	c := AlarmChange{Class: "C", ID: "0a"}
	at := time.UnixMilli(4000000000000)
	t.Run("after it was applied", func(t *testing.T) {
		f := newFixture(t, libsqltest.File(t))
		f.object("0a", mirror.Config{}).grow(1)
		f.faults.set(nil, once(lost))
		out, err := f.SetAlarm(t.Context(), c, at)
		f.must(err)
		if out.After.EpochMs != at.UnixMilli() || !f.alarmOf("0a").Set {
			t.Errorf("%+v", out)
		}
		f.agree()
		f.idle()
	})
	t.Run("before it was applied", func(t *testing.T) {
		f := newFixture(t, libsqltest.File(t))
		f.object("0a", mirror.Config{}).grow(1)
		f.faults.set(once(lost), nil)
		_, err := f.SetAlarm(t.Context(), c, at)
		if err == nil || errors.Is(err, durable.ErrUnknownOutcome) || f.alarmOf("0a").Set {
			t.Errorf("%v, %+v", err, f.alarmOf("0a"))
		}
		f.idle()
	})
	t.Run("and the alarm changed meanwhile", func(t *testing.T) {
		f := newFixture(t, libsqltest.File(t))
		f.object("0a", mirror.Config{}).grow(1)
		f.faults.set(nil, once(func() error {
			f.plan(func(p *kv.Plan) { alarm.AddSet(p, "C", "0a", at.Add(time.Hour)) })
			return lost()
		}))
		_, err := f.SetAlarm(t.Context(), c, at)
		wantError(t, err, durable.ErrUnknownOutcome)
		f.idle()
	})
	t.Run("and the lease was lost before", func(t *testing.T) {
		f := newFixture(t, libsqltest.File(t))
		f.object("0a", mirror.Config{}).grow(1)
		f.faults.set(once(func() error { f.sql(`DELETE FROM kv`); return nil }), nil)
		_, err := f.SetAlarm(t.Context(), c, at)
		wantError(t, err, durable.ErrFenced)
		if f.alarmOf("0a").Set {
			t.Error("set without the lease")
		}
	})
}

func TestListAlarms(t *testing.T) {
	each(t, func(f *fixture) {
		for i := range 5 {
			f.plan(func(p *kv.Plan) {
				alarm.AddSet(p, "C", fmt.Sprintf("0%x", i), time.UnixMilli(int64(1700000000500-i*100)))
			})
		}
		f.plan(func(p *kv.Plan) { alarm.AddSetIn(p, "D", "0a", time.Hour) })
		h := f.hold("04", time.Minute)
		f.plan(func(p *kv.Plan) { alarm.AddClaim(p, h, nil) })
		list := func(class string, limit int) string {
			var out []string
			for a, err := range f.Alarms(t.Context(), class, limit) {
				f.must(err)
				out = append(out, a.Class+a.ID+a.Replica)
			}
			return strings.Join(out, " ")
		}
		for want, got := range map[string]string{
			"C03 C02 C01 C00 C04r1 D0a": list("", 0), "C03 C02": list("", 2), "D0a": list("D", 1), "": list("E", 0),
			"C03 C02 C01 C00 C04r1": list("C", 5),
		} {
			if got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		f.plan(func(p *kv.Plan) {
			alarm.AddRun(p, "C", "04", 1700000000001, alarm.Run{Due: 5, Replica: "r1", Outcome: alarm.OutcomeFailed, Error: "bad"})
			alarm.AddRun(p, "C", "04", 1700000000002, alarm.Run{Due: 5, Replica: "r2", Outcome: alarm.OutcomeOK})
			alarm.AddDead(p, h, "too bad")
		})
		i, err := f.Alarm(t.Context(), "C", "04")
		f.must(err)
		if i.Set || i.Dead == nil || !i.Held || i.Lease.Replica != "r1" || len(i.Runs) != 2 || i.Runs[0].StartedMs != 1700000000002 || i.Runs[1].Error != "bad" {
			t.Errorf("%+v", i)
		}
		var dead []DeadAlarm
		for d, err := range f.DeadAlarms(t.Context(), "", 0) {
			f.must(err)
			dead = append(dead, d)
		}
		if len(dead) != 1 || dead[0].ID != "04" || dead[0].Error != "too bad" {
			t.Errorf("%+v", dead)
		}
		_, err = f.Alarm(t.Context(), "C", "0f")
		wantError(t, err, ErrNotFound)
	})
}

// TestListManyAlarms: pages follow each other without gaps.
func TestListManyAlarms(t *testing.T) {
	f := newFixture(t, libsqltest.File(t))
	const many = alarmPage + 7
	for i := range many {
		f.plan(func(p *kv.Plan) {
			alarm.AddSet(p, "C", fmt.Sprintf("%04x", i), time.UnixMilli(int64(1700000000000+i/2)))
		})
	}
	for limit, want := range map[int]int{0: many, 1: 1, alarmPage: alarmPage, alarmPage + 1: alarmPage + 1, many + 1: many} {
		n := 0
		for a, err := range f.Alarms(t.Context(), "C", limit) {
			f.must(err)
			if a.ID != fmt.Sprintf("%04x", n) {
				t.Fatalf("%d is %s", n, a.ID)
			}
			n++
		}
		if n != want {
			t.Errorf("limit %d: %d, want %d", limit, n, want)
		}
	}
}
