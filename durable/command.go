package durable

import (
	"context"
	"flag"
	"io"
)

// A Command is an operator's command of an application, run as
// "dwk app <application> <command>" in a process of its own, on the stores of a
// configuration that mounts the application. Replicas may run meanwhile, and
// need not: within Run the [Env] reaches the same bindings and objects, whose
// events the process runs itself. It serves nothing, and no alarm, schedule or
// consumer runs in it: what Run sends to a queue waits for a replica.
type Command struct {
	// Name is lower case.
	Name string
	// Args name the positional arguments; one in brackets may be left out.
	Args []string
	// Short is one line, Long and Example are more for the help of the command.
	Short, Long, Example string
	// Setup declares the flags of one run and returns what runs when they have
	// been parsed. The names of the global flags, and "yes", are taken.
	Setup func(flags *flag.FlagSet) CommandFunc
}

// A CommandFunc runs a command. An error that wraps [ErrInvalid] is wrong usage,
// [ErrNotFound] says that the named thing does not exist, [ErrUnavailable] that a
// store could not be reached; all others are failures. Their text is one line.
// Context ends when the operator interrupts the command.
type CommandFunc func(ctx context.Context, env Env, call Call) error

// A Call is one run of a command.
type Call struct {
	// Args are as many as the command demands, or fewer by those in brackets.
	Args []string
	// In is the standard input; Out is for answers that are bytes. Others go
	// through Show.
	In  io.Reader
	Out io.Writer
	// Show writes the answer, once.
	Show func(Answer) error
	// Note writes a line for people, apart from the answer.
	Note func(text string)
	// Confirm asks before something is changed that cannot be taken back, unless
	// the operator has said yes already. It fails when the answer is no.
	Confirm func(ctx context.Context, question string) error
}

// An Answer is what a command found or did: for people a table, and for scripts
// a value that is written as JSON.
type Answer struct {
	// Columns head the rows; without them the first cell of each row names what
	// stands beside it.
	Columns []string
	Rows    [][]string
	JSON    any
}
