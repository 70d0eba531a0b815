// Package sim runs whole fleets in one process, under a clock and a network
// that a seed makes hostile, and checks what the promises say about them. It
// has tests only.
//
// A scenario is a bubble of testing/synctest: its time is made up, so that
// waiting costs nothing. In it are several real runtimes, pollers and queue
// consumers, each with a store of its own over a wire that delays, loses,
// doubles and reorders statements and answers. At the other end is one SQLite
// database in memory, which runs the statements as they are, except that their
// clock is the scenario's.
package sim
