package term

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotAsked says that nobody can be asked.
	ErrNotAsked = errors.New("this changes what is stored, and there is no terminal to ask on")
	// ErrDeclined says that the answer was not yes.
	ErrDeclined = errors.New("not confirmed, nothing was changed")
)

// Confirm asks a question that only yes answers. It fails with [ErrNotAsked],
// [ErrDeclined], or the cause of ctx's end.
func (t *Term) Confirm(ctx context.Context, format string, args ...any) error {
	if !t.Interactive {
		return ErrNotAsked
	}
	fmt.Fprintf(t.Err, "%s [y/N] ", Clean(fmt.Sprintf(format, args...)))
	type reply struct {
		line string
		err  error
	}
	answer := make(chan reply, 1)
	// Nothing interrupts the reading of a terminal: when ctx ends first, the
	// goroutine goes on until the process does.
	go func() {
		line, err := bufio.NewReader(t.In).ReadString('\n')
		answer <- reply{strings.ToLower(strings.TrimSpace(line)), err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(t.Err)
		return ctx.Err()
	case a := <-answer:
		if a.err != nil { // no line feed was typed
			fmt.Fprintln(t.Err)
		}
		if a.line != "y" && a.line != "yes" {
			return ErrDeclined
		}
		return nil
	}
}
