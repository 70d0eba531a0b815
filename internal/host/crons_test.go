package host

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/config"
)

// clockApp brings schedules with these handlers and expressions.
func clockApp(crons ...durable.Cron) durable.App {
	return durable.App{
		Name: "clock", Requires: durable.Requirements{Databases: []string{"CLOCK_DB"}}, Crons: crons,
		New: func(durable.Env) (http.Handler, error) { return http.NotFoundHandler(), nil },
	}
}

func clockConfig(t *testing.T, crons ...config.Cron) *config.Config {
	cfg := testConfig(t, nil)
	cfg.Mounts = append(cfg.Mounts, config.Mount{Path: "/clock", App: "clock"})
	cfg.Databases = []config.Database{{Name: "CLOCK_DB"}}
	cfg.Crons = crons
	return cfg
}

// A schedule gets its application's bindings, and the configuration changes it.
func TestSchedules(t *testing.T) {
	ran := make(chan durable.Occurrence, 10)
	app := clockApp(durable.Cron{Name: "tick", Schedule: "@yearly", Run: func(ctx context.Context, env durable.Env, o durable.Occurrence) error {
		if _, err := env.Database("CLOCK_DB").First(ctx, `SELECT 1`); err != nil {
			t.Error(err)
		}
		ran <- o
		return nil
	}})
	_, admin, stop := serve(t, clockConfig(t, config.Cron{App: "clock", Name: "tick", Schedule: "@every 1s", Zone: "UTC", Overlap: "skip", Timeout: time.Minute}), app)
	for range 2 {
		if o := <-ran; o.Name != "tick" || o.Attempt != 1 || o.At.UnixMilli()%1000 != 0 {
			t.Errorf("%+v", o)
		}
	}
	if _, text := get(t, admin+"/metrics"); !strings.Contains(text, `dwk_cron_last_run_age_seconds{schedule="tick"}`) {
		t.Error("no metrics of the schedule")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// All that is wrong with schedules is named before anything is served.
func TestBadSchedules(t *testing.T) {
	run := func(context.Context, durable.Env, durable.Occurrence) error { return nil }
	app := clockApp(
		durable.Cron{Name: "never", Schedule: "0 0 31 2 *", Run: run}, durable.Cron{Name: "idle", Schedule: "@daily"},
		durable.Cron{Name: "zone", Schedule: "CRON_TZ=Mars @daily", Run: run}, durable.Cron{Name: "twice", Schedule: "@daily", Run: run},
		durable.Cron{Name: "twice", Schedule: "@daily", Run: run}, durable.Cron{Name: "own", Schedule: "@daily", Run: run})
	cfg := clockConfig(t, config.Cron{App: "clock", Name: "own", Schedule: "*/90 * * * *", Zone: "UTC", Timeout: time.Minute}, config.Cron{App: "clock", Name: "gone", Zone: "UTC"})
	err := Serve(t.Context(), ServeOptions{Config: cfg, Apps: []durable.App{app, echo}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err == nil {
		t.Fatal("it serves")
	}
	for _, want := range []string{"never: ", "never occurs", "no handler", `"Mars" is not a time zone`, "schedule twice: there is one", "schedule own: ", `no schedule "gone"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}
