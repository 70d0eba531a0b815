package audit

import (
	"slices"

	"github.com/davidwkeith/dwk/internal/kv/tuple"
)

// The checks, by the names that findings have. They are stable.
const (
	StoreMeta     = "store.meta"
	StoreMode     = "store.mode"
	StoreSequence = "store.sequence"

	EntryKey     = "entry.key"
	EntryValue   = "entry.value"
	EntryEndless = "entry.endless"
	EntryMortal  = "entry.mortal"

	LeaseEndless = "lease.endless"
	LeaseLong    = "lease.long"

	AlarmDueMissing = "alarm.due.missing"
	AlarmDueStray   = "alarm.due.stray"
	AlarmDueDiffers = "alarm.due.differs"
	AlarmClaim      = "alarm.claim"
	AlarmOverdue    = "alarm.overdue"
	AlarmNoObject   = "alarm.no-object"
	AlarmDead       = "alarm.dead"
	AlarmLate       = "alarm.late"
	AlarmRuns       = "alarm.runs"

	MessageOverdue = "message.overdue"
	MessageDead    = "message.dead"

	ScheduleOverdue = "schedule.overdue"
	ScheduleClaim   = "schedule.claim"
	ScheduleOverlap = "schedule.overlap"
	ScheduleHistory = "schedule.history"
	ScheduleLate    = "schedule.late"
	ScheduleRuns    = "schedule.runs"
	ScheduleUnknown = "schedule.unknown"

	LogHead   = "log.head"
	LogRow    = "log.row"
	LogChain  = "log.chain"
	LogLevels = "log.levels"
	LogGap    = "log.gap"
	LogStray  = "log.stray"

	FileMissing = "file.missing"
	FileSize    = "file.size"
	FileName    = "file.name"
	FileGarbage = "file.garbage"

	DatabaseDamaged = "database.damaged"
)

// Checks says what each check finds, for people.
var Checks = []struct {
	Name, Text string
	// Information is no fault.
	Information bool
}{
	{Name: StoreMeta, Text: "the row of kv_meta is missing: every commit is refused"},
	{Name: StoreMode, Text: "the mode marker or the identity is not what this program works on"},
	{Name: StoreSequence, Text: "entries or heads have versionstamps that were not given yet: the primary lost commits"},
	{Name: EntryKey, Text: "a key that cannot be read, or is not of its kind's form"},
	{Name: EntryValue, Text: "a value that is no JSON, or not of its kind's form"},
	{Name: EntryEndless, Text: "an entry without expiry, of a kind that must have one: a replica that never dies, a history that grows"},
	{Name: EntryMortal, Text: "an entry that will expire and must not: an alarm or a message that would be lost"},
	{Name: LeaseEndless, Text: "a lease without expiry: its object is blocked for ever"},
	{Name: LeaseLong, Text: "a lease that lasts longer than lease.ttl from now"},
	{Name: AlarmDueMissing, Text: "an alarm that the due index does not have: it never fires"},
	{Name: AlarmDueStray, Text: "an entry of the due index that no slot names"},
	{Name: AlarmDueDiffers, Text: "slot and due entry have other values"},
	{Name: AlarmClaim, Text: "a claim whose lease is over and that nobody took up again, or that does not end with its lease"},
	{Name: AlarmOverdue, Text: "an alarm that should have fired longer ago than --overdue"},
	{Name: AlarmNoObject, Text: "an alarm whose object has no log, an older host's, or was deleted: it is kept and never fires"},
	{Name: AlarmLate, Text: "a run that began later than --overdue after it was due, since --since"},
	{Name: MessageOverdue, Text: "a queue whose oldest message has been due for longer than --overdue"},
	{Name: ScheduleOverdue, Text: "a schedule that was due longer ago than --overdue, while nothing of it runs"},
	{Name: ScheduleClaim, Text: "a run that was cut off longer ago than --overdue and was not repeated, or that no replica can find"},
	{Name: ScheduleOverlap, Text: "runs of a schedule under way at the same time that must not overlap"},
	{Name: ScheduleHistory, Text: "occurrences of which the history tells nothing: neither run, nor skipped, nor missed"},
	{Name: ScheduleLate, Text: "a run that began later than --overdue after its time, since --since"},
	{Name: LogHead, Text: "the head is not what the last row of the log says"},
	{Name: LogRow, Text: "a row that contradicts itself"},
	{Name: LogChain, Text: "a row that does not begin with the checksum with which the one before it ends"},
	{Name: LogLevels, Text: "two levels that say different things about one commit"},
	{Name: LogGap, Text: "rows are missing: the log does not lead to the head"},
	{Name: LogStray, Text: "rows of an object that has no head"},
	{Name: FileMissing, Text: "a file that the log names is not in the object store"},
	{Name: FileSize, Text: "a file has another size than the log says"},
	{Name: FileName, Text: "a file whose name is not of the place that names it: it would be collected as garbage"},
	{Name: DatabaseDamaged, Text: "an object whose database cannot be put together, or fails SQLite's integrity check, or has another checksum than the head"},
	{Name: AlarmDead, Text: "an alarm that was given up after its retries", Information: true},
	{Name: AlarmRuns, Text: "how punctual the runs of a class were, since --since", Information: true},
	{Name: MessageDead, Text: "a queue that has dead letters", Information: true},
	{Name: ScheduleRuns, Text: "how punctual the runs of a schedule were, since --since", Information: true},
	{Name: ScheduleUnknown, Text: "a schedule that is not run any more and that this configuration does not have", Information: true},
	{Name: FileGarbage, Text: "a file marked as garbage that the log still names: it is kept, and the mark goes when garbage is collected", Information: true},
}

// Severities.
const (
	SeverityFinding     = "finding"
	SeverityInformation = "information"
)

// A Finding is something that does not hold, or a piece of information.
type Finding struct {
	// Check is the name of the check, and Severity whether it is a fault.
	Check    string `json:"check"`
	Severity string `json:"severity"`
	// What it is about.
	Class    string    `json:"class,omitempty"`
	ID       string    `json:"id,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Key      tuple.Key `json:"key,omitempty"`
	// Message says what is wrong, and Reason why, where the stores tell.
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"`
	// Count is the number of things that one finding is about, if not 1.
	Count int64 `json:"count,omitempty"`

	// same is equal only for findings about the same fault.
	same string
}

// is reports whether two findings are about the same fault.
func (f Finding) is(g Finding) bool {
	return f.Check == g.Check && f.Class == g.Class && f.ID == g.ID && f.Queue == g.Queue && f.Schedule == g.Schedule && f.Key.String() == g.Key.String() && f.same == g.same
}

// A Summary says what was looked at, and what was found.
type Summary struct {
	Entries   int64 `json:"entries"`
	Alarms    int64 `json:"alarms"`
	Runs      int64 `json:"runs"`
	Queues    int64 `json:"queues"`
	Schedules int64 `json:"schedules"`
	Objects   int64 `json:"objects"`
	Rows      int64 `json:"rows"`
	Files     int64 `json:"files"`
	Databases int64 `json:"databases"`
	// Findings and Information count both severities, and Counts each check.
	Findings    int64            `json:"findings"`
	Information int64            `json:"information"`
	Counts      map[string]int64 `json:"counts"`
}

// A reporter hands findings on.
type reporter struct {
	emit  func(Finding) error
	limit int64
	sum   *Summary
}

// full reports whether a check has been reported often enough.
func (r *reporter) full(check string) bool { return r.limit > 0 && r.sum.Counts[check] >= r.limit }

func (r *reporter) add(f Finding) error {
	f.Severity = SeverityFinding
	if slices.ContainsFunc(Checks, func(c struct {
		Name, Text  string
		Information bool
	}) bool {
		return c.Name == f.Check && c.Information
	}) {
		f.Severity = SeverityInformation
		r.sum.Information++
	} else {
		r.sum.Findings++
	}
	full := r.full(f.Check)
	r.sum.Counts[f.Check]++
	if full {
		return nil
	}
	return r.emit(f)
}
