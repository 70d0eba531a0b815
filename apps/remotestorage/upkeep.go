package remotestorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// A purgeMessage has what a deleted account stored deleted.
type purgeMessage struct {
	ID string `json:"id"` // of its Vault
}

// consume deletes what deleted accounts stored, and then frees their names.
func consume(ctx context.Context, env durable.Env, b durable.Batch) error {
	var failed []error
	for _, m := range b.Messages() {
		var p purgeMessage
		if err := json.Unmarshal(m.Body(), &p); err != nil {
			failed = append(failed, fmt.Errorf("message %s: %w", m.ID(), err))
			continue
		}
		if err := purge(ctx, env, p.ID); err != nil {
			failed = append(failed, fmt.Errorf("purge of vault %s: %w", p.ID, err))
			continue
		}
		m.Ack()
	}
	return errors.Join(failed...)
}

func purge(ctx context.Context, env durable.Env, text string) error {
	id, err := durable.ParseID(text)
	if err != nil {
		return err
	}
	vs, db := newVaults(env), env.Database(databaseName)
	// Only what an account was that is marked: whatever else the message says.
	row, err := db.First(ctx, `SELECT count(*) FROM rs_account WHERE id = ? AND deleted IS NOT NULL`, text)
	var marked int64
	if err == nil {
		err = row.Scan(&marked)
	}
	if err != nil || marked == 0 {
		return err
	}
	if err := vs.call(ctx, id, "close", none{}, nil); err != nil {
		return err
	}
	for more := true; more; {
		var a purgeAnswer
		if err := vs.call(ctx, id, "purge", none{}, &a); err != nil {
			return err
		}
		more = a.More
	}
	_, err = db.Exec(ctx, `DELETE FROM rs_account WHERE id = ? AND deleted IS NOT NULL`, text)
	return err
}

// sweep is the daily upkeep: what a crash can have left at the edges between
// databases, objects and the bucket.
func sweep(ctx context.Context, env durable.Env, _ durable.Occurrence) error {
	return errors.Join(sweepAccounts(ctx, env), sweepBodies(ctx, env))
}

func sweepAccounts(ctx context.Context, env durable.Env) error {
	db, now := env.Database(databaseName), env.Now().UnixMilli()
	if _, err := db.Batch(ctx,
		durable.Statement{SQL: `DELETE FROM rs_session WHERE expires <= ?`, Args: []any{now}},
		durable.Statement{SQL: `DELETE FROM rs_attempt WHERE since <= ?`, Args: []any{now - attemptWindow.Milliseconds()}}); err != nil {
		return fmt.Errorf("sweep sessions: %w", err)
	}
	// Marked, and the message was lost before it was sent.
	for row, err := range db.Query(ctx, `SELECT id FROM rs_account WHERE deleted <= ?`, now-time.Hour.Milliseconds()) {
		var p purgeMessage
		if err == nil {
			err = row.Scan(&p.ID)
		}
		if err == nil {
			err = env.Queue(queueName).Send(ctx, p, durable.SendOptions{})
		}
		if err != nil {
			return fmt.Errorf("sweep accounts: %w", err)
		}
	}
	return nil
}

// sweepBodies deletes bodies that no Vault knows: there are such only after an
// object was brought back to an earlier state.
func sweepBodies(ctx context.Context, env durable.Env) error {
	bucket, vs := env.Bucket(bucketName), newVaults(env)
	grace := time.Duration(env.Settings().(*Settings).Grace)
	byVault := map[string][]string{}
	for cursor := ""; ; {
		page, err := bucket.List(ctx, durable.ListOptions{Prefix: blobPrefix, Cursor: cursor})
		if err != nil {
			return fmt.Errorf("sweep bodies: %w", err)
		}
		clear(byVault)
		for _, o := range page.Objects {
			vault, _, ok := strings.Cut(strings.TrimPrefix(o.Key, blobPrefix), "/")
			if ok && !o.Uploaded.IsZero() && env.Now().Sub(o.Uploaded) > grace {
				byVault[vault] = append(byVault[vault], o.Key)
			}
		}
		for vault, keys := range byVault {
			if err := sweepVault(ctx, vs, bucket, vault, keys); err != nil {
				return fmt.Errorf("sweep bodies of vault %s: %w", vault, err)
			}
		}
		if cursor = page.Cursor; cursor == "" {
			return nil
		}
	}
}

func sweepVault(ctx context.Context, vs vaults, bucket durable.Bucket, vault string, keys []string) error {
	id, err := durable.ParseID(vault)
	if err != nil {
		return err
	}
	var unknown unknownRequest
	if err := vs.call(ctx, id, "unknown", unknownRequest{Keys: keys}, &unknown); err != nil {
		return err
	}
	for _, key := range unknown.Keys {
		if err := bucket.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
