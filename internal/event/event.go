// Package event holds the names of what happens, as logs show them and
// metrics count them. A name is stable: dashboards and alerts are built on it.
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

	AlarmFireOK            = "alarm.fire.ok"
	AlarmFireRetry         = "alarm.fire.retry"
	AlarmFireDead          = "alarm.fire.dead"
	AlarmFireLost          = "alarm.fire.lost"
	FleetPollFailed        = "fleet.poll.failed"
	FleetPollRecovered     = "fleet.poll.recovered"
	FleetPollLag           = "fleet.poll.lag"
	FleetReplicaRegistered = "fleet.replica.registered"
	FleetReplicaLost       = "fleet.replica.lost"
	FleetReplicaState      = "fleet.replica.state"
	FleetModeRefused       = "fleet.mode.refused"

	KVSweepOK = "kv.sweep.ok"

	ProbeWarned         = "probe.warned"
	ProbeStoreFailed    = "probe.store.failed"
	ProbeStoreRecovered = "probe.store.recovered"

	ServeStarted  = "serve.started"
	ServeStopping = "serve.stopping"
	ServeStopped  = "serve.stopped"

	DrainRequested = "drain.requested"
	DrainStepDone  = "drain.step.done"

	HTTPRequest  = "http.request"
	HTTPPanicked = "http.panic"

	ConfigWarning = "config.warning"
)

// Keys of log attributes that more than one part uses.
const (
	KeyClass  = "class"
	KeyObject = "object"
	KeyHolder = "holder"
	KeyTXID   = "txid"
	KeyEpoch  = "epoch"
	KeyError  = "error"
)
