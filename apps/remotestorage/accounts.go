package remotestorage

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

var (
	errNoAccount = fmt.Errorf("no such account: %w", durable.ErrNotFound)
	errNameTaken = errors.New("there is an account of that name, or one is being deleted")
)

// validName: account names are part of addresses and URLs.
var validNamePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

func validName(name string) bool { return validNamePattern.MatchString(name) }

// An account is whose store it is. Its Vault has an id of its own, so that the
// next account of a name finds nothing of the last.
type account struct {
	name, id, password string
	created            int64 // epoch milliseconds
}

// accounts are the accounts of the fleet, in the SQL database.
type accounts struct {
	env    durable.Env
	db     durable.Database
	cache  durable.Cache
	hasher *hasher
}

var accountSchema = []durable.Statement{
	{SQL: `CREATE TABLE IF NOT EXISTS rs_account (name TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, password TEXT NOT NULL,
		created INTEGER NOT NULL, deleted INTEGER) STRICT`},
	{SQL: `CREATE TABLE IF NOT EXISTS rs_session (hash BLOB PRIMARY KEY, account TEXT NOT NULL, expires INTEGER NOT NULL) STRICT`},
	{SQL: `CREATE INDEX IF NOT EXISTS rs_session_account ON rs_session (account)`},
	{SQL: `CREATE TABLE IF NOT EXISTS rs_attempt (key TEXT PRIMARY KEY, failures INTEGER NOT NULL, since INTEGER NOT NULL) STRICT`},
}

// callTime bounds what is not a request's.
const callTime = 30 * time.Second

func openAccounts(env durable.Env) (*accounts, error) {
	a := newAccounts(env)
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	if _, err := a.db.Batch(ctx, accountSchema...); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", databaseName, err)
	}
	return a, nil
}

func newAccounts(env durable.Env) *accounts {
	return &accounts{env: env, db: env.Database(databaseName), cache: env.Cache(cacheName), hasher: theHasher}
}

// cacheTTL is how long a replica remembers which Vault is an account's. One that
// is not any more says so.
const cacheTTL = 10 * time.Minute

// vault returns the id of an account's Vault.
func (a *accounts) vault(ctx context.Context, name string) (durable.ID, error) {
	if !validName(name) {
		return durable.ID{}, errNoAccount
	}
	if id, ok := a.cache.Get("vault:" + name); ok {
		return id.(durable.ID), nil
	}
	acc, err := a.get(ctx, name)
	if err != nil {
		return durable.ID{}, err
	}
	id, err := durable.ParseID(acc.id)
	if err != nil {
		return durable.ID{}, err
	}
	a.cache.Set("vault:"+name, id, cacheTTL)
	return id, nil
}

func (a *accounts) forget(name string) { a.cache.Delete("vault:" + name) }

func (a *accounts) get(ctx context.Context, name string) (account, error) {
	return a.first(ctx, `SELECT name, id, password, created FROM rs_account WHERE name = ? AND deleted IS NULL`, name)
}

func (a *accounts) first(ctx context.Context, query string, args ...any) (acc account, err error) {
	row, err := a.db.First(ctx, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return acc, errNoAccount
	}
	if err == nil {
		err = row.Scan(&acc.name, &acc.id, &acc.password, &acc.created)
	}
	return acc, err
}

// create makes an account. Its Vault is there first: a crash in between leaves
// one that is nobody's, and empty.
func (a *accounts) create(ctx context.Context, vs vaults, name, password string, quota int64) error {
	hash, err := a.hasher.hash(ctx, password)
	if err != nil {
		return err
	}
	id := durable.NewUniqueID()
	if err := vs.call(ctx, id, "open", openRequest{Quota: quota}, nil); err != nil {
		return err
	}
	_, err = a.db.Exec(ctx, `INSERT INTO rs_account (name, id, password, created) VALUES (?, ?, ?, ?)`, name, id.String(), hash, a.env.Now().UnixMilli())
	if _, taken := errors.AsType[*durable.ConstraintError](err); taken {
		return errors.Join(errNameTaken, vs.call(ctx, id, "close", none{}, nil))
	}
	return err
}

// setPassword returns the account with its new password.
func (a *accounts) setPassword(ctx context.Context, acc account, password string) (account, error) {
	hash, err := a.hasher.hash(ctx, password)
	if err != nil {
		return acc, err
	}
	_, err = a.db.Batch(ctx,
		durable.Statement{SQL: `UPDATE rs_account SET password = ? WHERE id = ?`, Args: []any{hash, acc.id}},
		durable.Statement{SQL: `DELETE FROM rs_session WHERE account = ?`, Args: []any{acc.id}})
	acc.password = hash
	return acc, err
}

// remove ends an account: nobody gets in from now on. What it stored goes by
// the queue, and then its name is free.
func (a *accounts) remove(ctx context.Context, vs vaults, acc account) error {
	id, err := durable.ParseID(acc.id)
	if err != nil {
		return err
	}
	if _, err := a.db.Batch(ctx,
		durable.Statement{SQL: `UPDATE rs_account SET deleted = ? WHERE id = ?`, Args: []any{a.env.Now().UnixMilli(), acc.id}},
		durable.Statement{SQL: `DELETE FROM rs_session WHERE account = ?`, Args: []any{acc.id}}); err != nil {
		return err
	}
	if err := vs.call(ctx, id, "close", none{}, nil); err != nil {
		return err
	}
	return a.env.Queue(queueName).Send(ctx, purgeMessage{acc.id}, durable.SendOptions{})
}

// login checks a password. A try counts against the name and the client from its
// beginning, so that many at once are not more than one after the other; that of
// a password that is right does not.
func (a *accounts) login(ctx context.Context, name, password, client string) (account, error) {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(name)), "@") // people type their address
	if len(password) > maxPassword || !validName(name) {
		name, password = "", "" // which is nobody's, and takes as long
	}
	client, named := "client "+client, "name "+name
	if err := a.try(ctx, client, named); err != nil {
		return account{}, err
	}
	acc, err := a.get(ctx, name)
	if err != nil && !errors.Is(err, errNoAccount) {
		return account{}, err
	}
	ok, err := a.hasher.check(ctx, acc.password, password)
	if err != nil {
		return account{}, err
	}
	if !ok {
		return account{}, errWrongPassword
	}
	return acc, a.takeBack(ctx, client, named)
}

var errWrongPassword = errors.New("the name or the password is wrong")

// A tooManyError says when to try again.
type tooManyError struct{ wait int } // seconds

func (tooManyError) Error() string { return "too many failures" }

const attemptWindow = 15 * time.Minute

// maxFailures in a window, of a client, and of a name from all clients.
var maxFailures = map[string]int64{"client": 20, "name": 60}

// countTry counts a try, up to one more than there may be: of a key ?1, at ?2, in
// a window that began after ?3, of ?4 tries; unless those of the key ?5 are more
// than ?6.
const countTry = `INSERT INTO rs_attempt SELECT ?1, 1, ?2 WHERE coalesce((SELECT failures FROM rs_attempt WHERE key = ?5 AND since > ?3), 0) <= ?6
	ON CONFLICT DO UPDATE SET failures = CASE WHEN since > ?3 THEN min(failures, ?4) + 1 ELSE 1 END, since = CASE WHEN since > ?3 THEN since ELSE ?2 END
	RETURNING failures, since`

// try counts a try, or says when there may be another one. One that may not be
// counts only for what it is too much of.
func (a *accounts) try(ctx context.Context, client, name string) error {
	now := a.env.Now().UnixMilli()
	began := now - attemptWindow.Milliseconds()
	res, err := a.db.Batch(ctx,
		durable.Statement{SQL: countTry, Args: []any{client, now, began, maxFailures["client"], "", 0}},
		durable.Statement{SQL: countTry, Args: []any{name, now, began, maxFailures["name"], client, maxFailures["client"]}})
	if err != nil {
		return err
	}
	for i, most := range []int64{maxFailures["client"], maxFailures["name"]} {
		var failures, since int64
		if len(res[i].Rows) != 1 {
			return fmt.Errorf("count tries: %d rows", len(res[i].Rows))
		}
		if err := res[i].Rows[0].Scan(&failures, &since); err != nil {
			return err
		}
		if failures <= most {
			continue
		}
		many := tooManyError{int((since-began)/1000) + 1}
		if i == 1 {
			return errors.Join(many, a.takeBack(ctx, client))
		}
		return many
	}
	return nil
}

// takeBack has a try count no more.
func (a *accounts) takeBack(ctx context.Context, keys ...string) error {
	var all []durable.Statement
	for _, key := range keys {
		all = append(all, durable.Statement{SQL: `UPDATE rs_attempt SET failures = failures - 1 WHERE key = ? AND failures > 0`, Args: []any{key}})
	}
	_, err := a.db.Batch(ctx, all...)
	return err
}

// session makes a session of who has just shown the password, and returns its
// secret. A password that has been changed since is none.
func (a *accounts) session(ctx context.Context, acc account, ttl time.Duration) (string, error) {
	secret := rand.Text()
	hash := hashToken(secret)
	res, err := a.db.Exec(ctx, `INSERT INTO rs_session SELECT ?, id, ? FROM rs_account WHERE id = ? AND password = ? AND deleted IS NULL`,
		hash[:], a.env.Now().Add(ttl).UnixMilli(), acc.id, acc.password)
	if err == nil && res.Changes == 0 {
		err = errNoAccount
	}
	return secret, err
}

// whose returns the account of a session.
func (a *accounts) whose(ctx context.Context, secret string) (account, error) {
	hash := hashToken(secret)
	return a.first(ctx, `SELECT a.name, a.id, a.password, a.created FROM rs_account a JOIN rs_session s ON s.account = a.id
		WHERE s.hash = ? AND s.expires > ? AND a.deleted IS NULL`, hash[:], a.env.Now().UnixMilli())
}

func (a *accounts) endSession(ctx context.Context, secret string) error {
	hash := hashToken(secret)
	_, err := a.db.Exec(ctx, `DELETE FROM rs_session WHERE hash = ?`, hash[:])
	return err
}

// network is the part of an address that is one client: all of an IPv4 address,
// and the half of an IPv6 address that a site has.
func network(ip net.IP) string {
	if ip == nil || ip.To4() != nil {
		return ip.String()
	}
	return ip.Mask(net.CIDRMask(64, 128)).String()
}
