// Package term is what commands write to and ask on: tables for people, JSON
// for scripts, notes on the error stream. The streams are given to it, so that
// a command can be run in process.
package term

import (
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/lipgloss"
	"github.com/mattn/go-isatty"
	"github.com/muesli/termenv"
)

// A Term is one command's streams and how it uses them.
type Term struct {
	In       io.Reader
	Out, Err io.Writer
	// JSON has answers and errors written for scripts.
	JSON bool
	// Quiet leaves notes out, and Verbose adds details to errors.
	Quiet, Verbose bool
	// Interactive says that a person can be asked.
	Interactive bool

	color  bool
	screen bool // Out is a terminal
}

// New returns a Term on the streams. Colour is used only when out is a
// terminal that can show it, and questions are asked only when in and err are
// both terminals.
func New(in io.Reader, out, err io.Writer, getenv func(string) string) *Term {
	screen := isTerminal(out)
	return &Term{
		In: in, Out: out, Err: err,
		Interactive: isTerminal(in) && isTerminal(err),
		screen:      screen,
		color:       screen && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && (isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()))
}

// NoColor turns colour off.
func (t *Term) NoColor() { t.color = false }

// ErrIsTerminal reports whether a person reads the error stream.
func (t *Term) ErrIsTerminal() bool { return isTerminal(t.Err) }

// Notef writes a line for people to the error stream, unless it is to be
// quiet.
func (t *Term) Notef(format string, args ...any) {
	if !t.Quiet {
		fmt.Fprintln(t.Err, Clean(fmt.Sprintf(format, args...)))
	}
}

// Detailf writes a line to the error stream when it is to be verbose.
func (t *Term) Detailf(format string, args ...any) {
	if t.Verbose {
		fmt.Fprintln(t.Err, Clean(fmt.Sprintf(format, args...)))
	}
}

// Clear empties the screen before something is shown again; it does nothing
// when the answer does not go to a terminal.
func (t *Term) Clear() {
	if t.screen {
		fmt.Fprint(t.Out, "\x1b[H\x1b[2J")
	}
}

// renderer draws for Out.
func (t *Term) renderer() *lipgloss.Renderer {
	r := lipgloss.NewRenderer(t.Out)
	r.SetColorProfile(termenv.Ascii)
	if t.color {
		r.SetColorProfile(termenv.ANSI)
	}
	r.SetHasDarkBackground(true) // or it would ask the terminal
	return r
}
