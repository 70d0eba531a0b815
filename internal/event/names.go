package event

// Names returns every name: what metrics count, and nothing else.
func Names() []string {
	return []string{
		LeaseAcquireOK, LeaseAcquireContended, LeaseAcquireFailed, LeaseExpired, LeaseReleaseLost,
		ObjectSyncOK, ObjectSyncFailed, ObjectCommitOK, ObjectCommitFenced, ObjectCommitUnknown, ObjectHandlerFailed, ObjectHandlerStuck, ObjectMirrorDropped,
		ObjectKeepFailed, ObjectKeepMerged, ObjectKeepTrimmed, ObjectKeepCollected,
		AlarmFireOK, AlarmFireRetry, AlarmFireDead, AlarmFireLost,
		SocketAccepted, SocketClosed, SocketCloseLost, SocketInterrupted, SocketWakeOK, SocketWakeFailed,
		FleetPollFailed, FleetPollRecovered, FleetPollLag,
		FleetReplicaRegistered, FleetReplicaLost, FleetReplicaState, FleetModeRefused,
		KVSweepOK,
		QueueBatchOK, QueueBatchFailed, QueueMessageDead, QueueClaimLost, QueueSettleFailed,
		CronRunOK, CronRunFailed, CronRunInterrupted, CronRunMissed, CronRunStuck, CronClaimLost, CronEndFailed,
		ProbeWarned, ProbeStoreFailed, ProbeStoreRecovered,
		ServeStarted, ServeStopping, ServeStopped,
		DrainRequested, DrainWithdrawn, DrainStepDone, DrainAbandoned,
		HTTPRequest, HTTPPanicked, HTTPError,
		ConfigWarning,
		SecretChanged, SecretFailed,
		BucketSweepFailed,
	}
}
