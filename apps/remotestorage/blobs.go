package remotestorage

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/durable"
)

// A body in the bucket has a key of its own and is never written again. It is
// staged before it is there, then a document points to it, and when none does any more it is
// an orphan until nobody can be reading it. So there is no moment at which a
// crash leaves a body that no table knows, or a document without its body.

const (
	blobPrefix = "vault/"
	// collectStep and collectTime bound how much one alarm collects: requests
	// wait meanwhile.
	collectStep = 32
	collectTime = 500 * time.Millisecond
)

// blobFolder is where the bodies of a Vault are.
func blobFolder(id durable.ID) string { return blobPrefix + id.String() + "/" }

// stage chooses the key of a body that is about to come.
func (v *vault) stage(ctx context.Context) (key string, err error) {
	key = blobFolder(v.state.ID()) + strings.ToLower(rand.Text())
	if _, err := v.exec(ctx, `INSERT INTO staged VALUES (?, ?)`, key, v.now()+v.grace()); err != nil {
		return "", err
	}
	return key, v.setAlarm(ctx)
}

func (v *vault) grace() int64 { return time.Duration(v.settings.Grace).Milliseconds() }

// orphan has a body collected after the grace.
func (v *vault) orphan(ctx context.Context, blob string) error {
	if _, err := v.exec(ctx, `INSERT INTO orphan VALUES (?, ?) ON CONFLICT DO NOTHING`, blob, v.now()+v.grace()); err != nil {
		return err
	}
	return v.setAlarm(ctx)
}

// drop has a staged body that is not wanted collected at once.
func (v *vault) drop(ctx context.Context, stage string) error {
	if stage == "" || stage == "begin" {
		return nil
	}
	n, err := v.exec(ctx, `DELETE FROM staged WHERE blob = ?`, stage)
	if err != nil || n == 0 {
		return err
	}
	if _, err := v.exec(ctx, `INSERT INTO orphan VALUES (?, 0) ON CONFLICT DO NOTHING`, stage); err != nil {
		return err
	}
	return v.setAlarm(ctx)
}

type unstageRequest struct {
	Key string `json:"key"`
}

func (v *vault) unstage(ctx context.Context, q unstageRequest) (none, error) {
	return none{}, v.drop(ctx, q.Key)
}

// setAlarm sets the alarm to when there is something to collect or forget.
func (v *vault) setAlarm(ctx context.Context) error {
	var next int64
	if _, err := first(ctx, v.db, []any{&next}, `SELECT coalesce(min(due), 0) FROM (
		SELECT min(due) AS due FROM staged UNION ALL SELECT max(min(due), 1) FROM orphan
		UNION ALL SELECT min(expires) FROM code UNION ALL SELECT min(expires) FROM grants WHERE expires > 0)`); err != nil {
		return err
	}
	if next == 0 {
		return v.state.DeleteAlarm()
	}
	if at, ok := v.state.Alarm(); ok && at.UnixMilli() == next {
		return nil
	}
	return v.state.SetAlarm(time.UnixMilli(next))
}

// expire forgets uploads, codes and tokens whose time is over.
func (v *vault) expire(ctx context.Context) error {
	now := v.now()
	v.grants = nil
	for _, query := range []string{
		`INSERT INTO orphan SELECT blob, 0 FROM staged WHERE due <= ? ON CONFLICT DO NOTHING`,
		`DELETE FROM staged WHERE due <= ?`,
		`DELETE FROM code WHERE expires <= ?`,
		`DELETE FROM grants WHERE expires > 0 AND expires <= ?`,
	} {
		if _, err := v.exec(ctx, query, now); err != nil {
			return err
		}
	}
	return nil
}

// collect deletes bodies that nothing points to. A body that is gone already is
// none to delete, so a run may be repeated.
func (v *vault) collect(ctx context.Context) error {
	var keys []string
	for row, err := range v.db.Query(ctx, `SELECT blob FROM orphan WHERE due <= ? ORDER BY due LIMIT ?`, v.now(), collectStep) {
		var key string
		if err == nil {
			err = row.Scan(&key)
		}
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	bucket, began := v.env.Bucket(bucketName), v.state.Now()
	done := 0
	var failed error
	for _, key := range keys {
		if failed = bucket.Delete(ctx, key); failed != nil {
			break
		}
		if done++; v.state.Now().Sub(began) > collectTime {
			break
		}
	}
	for _, key := range keys[:done] {
		if _, err := v.exec(ctx, `DELETE FROM orphan WHERE blob = ?`, key); err != nil {
			return err
		}
	}
	return failed
}

type unknownRequest struct {
	Keys []string `json:"keys"`
}

// unknown returns which keys no table knows.
func (v *vault) unknown(ctx context.Context, q unknownRequest) (unknownRequest, error) {
	out := unknownRequest{Keys: []string{}}
	for _, key := range q.Keys {
		var known bool
		if _, err := first(ctx, v.db, []any{&known}, `SELECT EXISTS (SELECT 1 FROM node WHERE blob = ?1)
			OR EXISTS (SELECT 1 FROM staged WHERE blob = ?1) OR EXISTS (SELECT 1 FROM orphan WHERE blob = ?1)`, key); err != nil {
			return unknownRequest{}, err
		}
		if !known {
			out.Keys = append(out.Keys, key)
		}
	}
	// An object that was brought back to an earlier state may lack its alarm.
	return out, v.setAlarm(ctx)
}
