// Package event holds the names of what happens, as logs show them and
// metrics count them. A name is stable: dashboards and alerts are built on it.
//
// A new name is a constant here, an entry of [Names] and a row of the table in
// docs/operators.md; the tests of internal/metrics compare them.
package event

// The names, by the part of the program that emits them.
const (
	LeaseAcquireOK        = "lease.acquire.ok"
	LeaseAcquireContended = "lease.acquire.contended"
	LeaseAcquireFailed    = "lease.acquire.failed"
	LeaseExpired          = "lease.expired"
	LeaseReleaseLost      = "lease.release.lost"

	ObjectSyncOK        = "object.sync.ok"
	ObjectSyncFailed    = "object.sync.failed"
	ObjectCommitOK      = "object.commit.ok"
	ObjectCommitFenced  = "object.commit.fenced"
	ObjectCommitUnknown = "object.commit.unknown"
	ObjectHandlerFailed = "object.handler.failed"
	ObjectHandlerStuck  = "object.handler.stuck"
	ObjectMirrorDropped = "object.mirror.dropped"

	ObjectKeepFailed    = "object.keep.failed"
	ObjectKeepMerged    = "object.keep.merged"
	ObjectKeepTrimmed   = "object.keep.trimmed"
	ObjectKeepCollected = "object.keep.collected"

	AlarmFireOK    = "alarm.fire.ok"
	AlarmFireRetry = "alarm.fire.retry"
	AlarmFireDead  = "alarm.fire.dead"
	AlarmFireLost  = "alarm.fire.lost"

	SocketAccepted    = "socket.accepted"
	SocketClosed      = "socket.closed"
	SocketCloseLost   = "socket.close.lost"
	SocketInterrupted = "socket.interrupted"
	SocketWakeOK      = "socket.wake.ok"
	SocketWakeFailed  = "socket.wake.failed"

	FleetPollFailed    = "fleet.poll.failed"
	FleetPollRecovered = "fleet.poll.recovered"
	FleetPollLag       = "fleet.poll.lag"

	FleetReplicaRegistered = "fleet.replica.registered"
	FleetReplicaLost       = "fleet.replica.lost"
	FleetReplicaState      = "fleet.replica.state"
	FleetModeRefused       = "fleet.mode.refused"

	KVSweepOK = "kv.sweep.ok"

	QueueBatchOK      = "queue.batch.ok"
	QueueBatchFailed  = "queue.batch.failed"
	QueueMessageDead  = "queue.message.dead"
	QueueClaimLost    = "queue.claim.lost"
	QueueSettleFailed = "queue.settle.failed"

	CronRunOK          = "cron.run.ok"
	CronRunFailed      = "cron.run.failed"
	CronRunInterrupted = "cron.run.interrupted"
	CronRunMissed      = "cron.run.missed"
	CronRunStuck       = "cron.run.stuck"
	CronClaimLost      = "cron.claim.lost"
	CronEndFailed      = "cron.end.failed"

	ProbeWarned         = "probe.warned"
	ProbeStoreFailed    = "probe.store.failed"
	ProbeStoreRecovered = "probe.store.recovered"

	ServeStarted  = "serve.started"
	ServeStopping = "serve.stopping"
	ServeStopped  = "serve.stopped"

	DrainRequested = "drain.requested"
	DrainWithdrawn = "drain.withdrawn"
	DrainStepDone  = "drain.step.done"
	DrainAbandoned = "drain.abandoned"

	HTTPRequest  = "http.request"
	HTTPPanicked = "http.panic"
	HTTPError    = "http.error"

	ConfigWarning = "config.warning"

	BucketSweepFailed = "bucket.sweep.failed"

	SecretChanged = "secret.changed"
	SecretFailed  = "secret.failed"
)

// Keys of log attributes that more than one part uses.
const (
	KeyApp      = "app"
	KeyClass    = "class"
	KeyObject   = "object"
	KeyHolder   = "holder"
	KeyTXID     = "txid"
	KeyEpoch    = "epoch"
	KeyError    = "error"
	KeyQueue    = "queue"
	KeyStore    = "store"
	KeySchedule = "schedule"
)

// Keys of log attributes that metrics observe. Where an event carries one, the
// histogram of that name and event shows how its values are spread.
const (
	// KeyTook is how long it took, a time.Duration.
	KeyTook = "took"
	// KeyLate is how long after it was due it began, a time.Duration.
	KeyLate = "late"
	// KeyCount is the number of things that it was done to, an integer: the
	// messages of a batch, the rows of a sweep.
	KeyCount = "count"
)
