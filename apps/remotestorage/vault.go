package remotestorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

const vaultSchema = `
CREATE TABLE IF NOT EXISTS meta (
	id INTEGER PRIMARY KEY CHECK (id = 0), used INTEGER NOT NULL, quota INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0) STRICT;
-- A folder is there as long as something is in it. Node 1 is the root.
CREATE TABLE IF NOT EXISTS node (
	id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name TEXT NOT NULL, folder INTEGER NOT NULL, version TEXT NOT NULL,
	type TEXT, size INTEGER, modified INTEGER, blob TEXT, UNIQUE (parent, name)) STRICT;
CREATE INDEX IF NOT EXISTS node_blob ON node (blob) WHERE blob IS NOT NULL;
CREATE TABLE IF NOT EXISTS body (node INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS grants (
	hash BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, origin TEXT NOT NULL, scope TEXT NOT NULL,
	created INTEGER NOT NULL, used INTEGER NOT NULL, expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS code (
	hash BLOB PRIMARY KEY, redirect TEXT NOT NULL, challenge TEXT NOT NULL, origin TEXT NOT NULL, scope TEXT NOT NULL,
	expires INTEGER NOT NULL, made TEXT) STRICT, WITHOUT ROWID;
-- Bodies that nothing points to: not yet, or not any more.
CREATE TABLE IF NOT EXISTS staged (blob TEXT PRIMARY KEY, due INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orphan (blob TEXT PRIMARY KEY, due INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS orphan_due ON orphan (due);`

// A vault is one account's object. Times are epoch milliseconds.
type vault struct {
	state    durable.State
	env      durable.Env
	settings *Settings
	db       durable.SQL
	// What follows is what the database says, as long as the instance is used.
	meta   *vaultMeta
	grants map[[32]byte]*grant
}

type vaultMeta struct {
	used, quota int64
	closed      bool
}

func newVault(state durable.State, env durable.Env) (durable.Object, error) {
	if _, err := state.SQL().Exec(context.Background(), vaultSchema); err != nil {
		return nil, fmt.Errorf("create vault: %w", err)
	}
	return &vault{state: state, env: env, settings: env.Settings().(*Settings), db: state.SQL()}, nil
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	if path, ok := strings.CutPrefix(r.URL.EscapedPath(), "/store"); ok {
		err = v.serveStore(w, r, path)
	} else {
		err = v.serveCall(w, r, strings.TrimPrefix(r.URL.Path, "/call/"))
	}
	if err != nil {
		panic(err) // the host undoes the event and answers for it
	}
}

func (v *vault) now() int64 { return v.state.Now().UnixMilli() }

// load reads the account's figures; there are none when it is not open.
func (v *vault) load(ctx context.Context) (open bool, err error) {
	if v.meta == nil {
		m := &vaultMeta{}
		found, err := first(ctx, v.db, []any{&m.used, &m.quota, &m.closed}, `SELECT used, quota, closed FROM meta`)
		if err != nil || !found {
			return false, err
		}
		v.meta = m
	}
	return !v.meta.closed, nil
}

// first reads one row.
func first(ctx context.Context, db durable.SQL, dest []any, query string, args ...any) (found bool, err error) {
	for row, err := range db.Query(ctx, query, args...) {
		if err == nil {
			err = row.Scan(dest...)
		}
		if err != nil {
			return false, err
		}
		found = true
	}
	return found, nil
}

// exec runs statements and returns how many rows the last one changed.
func (v *vault) exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := v.db.Exec(ctx, query, args...)
	return res.Changes, err
}

// A call is a request that only this application makes: JSON in and out.
type call func(v *vault, ctx context.Context, body []byte) (any, error)

// A refusal is an answer and no failure.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

var calls = map[string]call{
	"open":    typed((*vault).open),
	"close":   typed((*vault).close),
	"purge":   typed((*vault).purge),
	"info":    typed((*vault).info),
	"quota":   typed((*vault).setQuota),
	"grant":   typed((*vault).grant),
	"code":    typed((*vault).code),
	"redeem":  typed((*vault).redeem),
	"revoke":  typed((*vault).revoke),
	"unstage": typed((*vault).unstage),
	"unknown": typed((*vault).unknown),
	"export":  typed((*vault).export),
}

// typed is a call with a request of a type.
func typed[In, Out any](f func(*vault, context.Context, In) (Out, error)) call {
	return func(v *vault, ctx context.Context, body []byte) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, fmt.Errorf("read call: %w", err)
		}
		return f(v, ctx, in)
	}
}

func (v *vault) serveCall(w http.ResponseWriter, r *http.Request, name string) error {
	f := calls[name]
	if f == nil {
		return fmt.Errorf("no call %q", name)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	out, err := f(v, r.Context(), body)
	if no, ok := errors.AsType[*refusal](err); ok {
		text(w, no.status, no.text)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}

// vaults are the Vaults of all accounts.
type vaults struct{ ns durable.Namespace }

func newVaults(env durable.Env) vaults { return vaults{env.Namespace(vaultClass)} }

func (vs vaults) get(id durable.ID) durable.Stub { return vs.ns.Get(id) }

// call makes a call. A refusal comes back as one.
func (vs vaults) call(ctx context.Context, id durable.ID, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://vault/call/"+name, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := vs.get(id).Do(r)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %w", name, &refusal{resp.StatusCode, strings.TrimSpace(string(answer))})
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// none is the answer of calls that have none, and the question of those that
// ask nothing.
type none struct{}

type openRequest struct {
	Quota int64 `json:"quota"`
}

// open makes the Vault an account's.
func (v *vault) open(ctx context.Context, q openRequest) (none, error) {
	if _, err := v.exec(ctx, `INSERT INTO meta (id, used, quota) VALUES (0, 0, ?) ON CONFLICT DO NOTHING`, q.Quota); err != nil {
		return none{}, err
	}
	v.meta = nil
	_, err := v.exec(ctx, `INSERT INTO node (id, parent, name, folder, version) VALUES (1, 0, '', 1, ?) ON CONFLICT DO NOTHING`, newVersion())
	return none{}, err
}

// close ends all access. What is stored stays until purge.
func (v *vault) close(ctx context.Context, _ none) (none, error) {
	v.meta, v.grants = nil, nil
	_, err := v.exec(ctx, `UPDATE meta SET closed = 1`)
	if err == nil {
		_, err = v.exec(ctx, `DELETE FROM grants`)
	}
	if err == nil {
		_, err = v.exec(ctx, `DELETE FROM code`)
	}
	return none{}, err
}

// purgeStep is how many documents of a closed account one event deletes.
const purgeStep = 2000

type purgeAnswer struct {
	More bool `json:"more"`
}

// purge deletes a part of what a closed account has stored.
func (v *vault) purge(ctx context.Context, _ none) (purgeAnswer, error) {
	if open, err := v.load(ctx); err != nil || open {
		return purgeAnswer{}, errors.Join(err, cond(open, "the account is not closed"))
	}
	const some = `(SELECT id FROM node ORDER BY id DESC LIMIT ?)`
	for _, query := range []string{
		`INSERT INTO orphan SELECT blob, 0 FROM node WHERE blob IS NOT NULL AND id IN ` + some + ` ON CONFLICT DO NOTHING`,
		`DELETE FROM body WHERE node IN ` + some,
		`DELETE FROM node WHERE id IN ` + some,
	} {
		if _, err := v.exec(ctx, query, purgeStep); err != nil {
			return purgeAnswer{}, err
		}
	}
	var left int64
	if _, err := first(ctx, v.db, []any{&left}, `SELECT EXISTS (SELECT 1 FROM node)`); err != nil {
		return purgeAnswer{}, err
	}
	if left == 0 {
		if _, err := v.exec(ctx, `UPDATE meta SET used = 0`); err != nil {
			return purgeAnswer{}, err
		}
		if _, err := v.exec(ctx, `UPDATE orphan SET due = 0`); err != nil {
			return purgeAnswer{}, err
		}
		v.meta = nil
	}
	return purgeAnswer{More: left == 1}, v.setAlarm(ctx)
}

func cond(failed bool, text string) error {
	if failed {
		return errors.New(text)
	}
	return nil
}

type infoAnswer struct {
	Used      int64       `json:"used"`
	Quota     int64       `json:"quota"`
	Documents int64       `json:"documents"`
	Waiting   int64       `json:"waiting"` // bodies that nothing points to
	Grants    []grantInfo `json:"grants"`
}

func (v *vault) info(ctx context.Context, _ none) (a infoAnswer, err error) {
	open, err := v.load(ctx)
	if err != nil || !open {
		return a, orRefusal(err, errNoAccountRefused)
	}
	a.Used, a.Quota = v.meta.used, v.meta.quota
	if _, err = first(ctx, v.db, []any{&a.Documents, &a.Waiting},
		`SELECT (SELECT count(*) FROM node WHERE folder = 0), (SELECT count(*) FROM staged) + (SELECT count(*) FROM orphan)`); err != nil {
		return a, err
	}
	a.Grants, err = v.listGrants(ctx)
	return a, err
}

var errNoAccountRefused = &refusal{http.StatusNotFound, "no such account"}

func (v *vault) setQuota(ctx context.Context, q openRequest) (none, error) {
	v.meta = nil
	n, err := v.exec(ctx, `UPDATE meta SET quota = ? WHERE closed = 0`, q.Quota)
	if err == nil && n == 0 {
		err = errNoAccountRefused
	}
	return none{}, err
}

// Alarm collects bodies, and forgets what has expired.
func (v *vault) Alarm(ctx context.Context, _ durable.AlarmInfo) error {
	if err := v.expire(ctx); err != nil {
		return err
	}
	if err := v.collect(ctx); err != nil {
		// The bucket is not there now. An alarm that fails is given up in the end.
		v.env.Logger().WarnContext(ctx, "bodies could not be deleted", "error", err)
		return v.state.SetAlarmIn(collectAgain)
	}
	return v.setAlarm(ctx)
}

// collectAgain is the wait after the bucket failed.
const collectAgain = time.Minute
