// Package durable is the contract between dwk and the applications it hosts.
//
// An application declares an [App]: a stateless HTTP front door, and the
// classes of durable objects behind it. A durable object is an actor with an
// id, its own SQLite database and one alarm; at most one replica of the fleet
// runs an object at a time, and nothing that an event lets out is seen before
// the writes that precede it are durable.
//
// The package imports the standard library only, and an application needs
// nothing else of this module.
package durable
