// Package cron runs schedules: each occurrence once in the whole fleet.
//
// What is due follows from the expression and the primary's time, so that every
// replica finds the same instants; which replica runs one is decided by a
// statement in its poll, with the primary's clock. A run holds a claim that its
// replica renews; one whose claim has ended was cut off, and is repeated once.
//
// Every time that decides something is the primary's, inside the statement.
package cron
