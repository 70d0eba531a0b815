// Package mirror keeps the SQLite database of one durable object on local disk,
// as a copy of what the object's log says, and turns local changes into log
// entries.
//
// A [Mirror] runs SQL on one connection that it owns. The database is in WAL
// mode and nothing but the mirror checkpoints it, so everything that an event
// changed stands in the WAL behind the last confirmed frame. [Mirror.Capture]
// reads those frames, verifies them and encodes the changed pages as one LTX
// file (format version 3, see github.com/superfly/ltx). When that entry is in
// the log, [Mirror.Confirm] moves the mirror's [Position]; when it is not,
// [Mirror.Undo] cuts the WAL back. [Mirror.Apply] brings entries of other
// replicas into the file.
//
// Positions carry the rolling checksum of LTX: the XOR over the checksums of
// all pages. Every step is checked against it, and whatever is in doubt is
// thrown away: a mirror is a cache that can always be rebuilt from the log.
//
// # The connection
//
// Each event finds the same connection state, whichever replica runs it:
// foreign keys are enforced, everything else is SQLite's default.
// [Mirror.Reset] restores that state after an event that changed it or made
// TEMP objects.
//
// An authorizer refuses what would change the database behind the capture or
// reach outside of it: ATTACH, DETACH, VACUUM INTO and all pragmas that are
// not on a list of harmless ones. It is installed below the SQL text, so it
// holds for triggers, views and table-valued pragma functions as well.
package mirror
