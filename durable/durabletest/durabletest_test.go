package durabletest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/durable/durabletest"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { http.DefaultTransport.(*http.Transport).CloseIdleConnections() }))
}

// The contract on the stores that a test has, which are those of a single machine.
func TestContract(t *testing.T) {
	durabletest.Suite(t, func(*testing.T) durabletest.Options { return durabletest.Options{} })
}

// The contract over the wire: a libSQL server and an S3 store.
func TestContractOverTheWire(t *testing.T) {
	durabletest.Suite(t, func(t *testing.T) durabletest.Options {
		store := s3mem.New()
		if err := store.CreateBucket("things"); err != nil {
			t.Fatal(err)
		}
		s3 := httptest.NewServer(gofakes3.New(store, gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithMetadataSizeLimit(0)).Server())
		t.Cleanup(s3.Close)
		central, db := libsqltest.Wire(t), libsqltest.Wire(t)
		return durabletest.Options{
			Config: map[string]string{
				"libsql.url": central.URL, "object_store.url": s3.URL + "/things/fleet", "object_store.region": "us-east-1",
				"object_store.path_style": "true", "object_store.access_key": "a", "object_store.secret_key": "s",
			},
			Databases: map[string]string{"DB": db.URL},
		}
	})
}

// A door counts who comes in, and closes an hour after the first.
type door struct {
	state durable.State
	env   durable.Env
}

func newDoor(state durable.State, env durable.Env) (durable.Object, error) {
	_, err := state.SQL().Exec(context.Background(), `CREATE TABLE IF NOT EXISTS guest(name TEXT PRIMARY KEY) STRICT`)
	return &door{state, env}, err
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := d.state.SQL().Exec(r.Context(), `INSERT INTO guest VALUES (?) ON CONFLICT DO NOTHING`, r.FormValue("name")); err != nil {
		panic(err)
	}
	if _, set := d.state.Alarm(); !set {
		if err := d.state.SetAlarmIn(time.Hour); err != nil {
			panic(err)
		}
	}
	if err := d.env.Queue("guests").Send(r.Context(), r.FormValue("name"), durable.SendOptions{Delay: time.Minute}); err != nil {
		panic(err)
	}
}

func (d *door) Alarm(ctx context.Context, _ durable.AlarmInfo) error {
	_, err := d.state.SQL().Exec(ctx, `DELETE FROM guest`)
	return err
}

// This is how an application is tested.
func TestDoor(t *testing.T) {
	var greeted []string
	app := durable.App{
		Name:    "door",
		Classes: map[string]durable.Class{"Door": newDoor},
		Consumers: map[string]durable.Consumer{"guests": func(_ context.Context, _ durable.Env, b durable.Batch) error {
			for _, m := range b.Messages() {
				greeted = append(greeted, string(m.Body()))
				m.Ack()
			}
			return nil
		}},
		New: func(env durable.Env) (http.Handler, error) {
			doors := env.Namespace("Door")
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				doors.Get(doors.ID("front")).ServeHTTP(w, r)
			}), nil
		},
	}
	h := durabletest.New(t, durabletest.Options{}, app)
	if a := h.Do("POST", "/?name=Ada", ""); a.Status != http.StatusOK {
		t.Fatalf("%d %s %v", a.Status, a.Body, a.Err)
	}
	h.Restart() // what counts is in the database
	h.Deliver("guests")
	if fmt.Sprint(greeted) != `["Ada"]` {
		t.Errorf("greeted %v", greeted)
	}
	if at, ok := h.Alarm("Door", "front"); !ok || time.Until(at) < 50*time.Minute {
		t.Errorf("alarm %v %v", at, ok)
	}
	if err := h.RunAlarm("Door", "front"); err != nil {
		t.Error(err)
	}
	if _, ok := h.Alarm("Door", "front"); ok {
		t.Error("there is an alarm still")
	}
}
