package term

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/charmbracelet/lipgloss"
)

// A Tone says how a cell is meant.
type Tone uint8

// The tones.
const (
	Plain Tone = iota
	Good
	Bad
	Warn
	Dim
)

// A Cell is a text with a tone.
type Cell struct {
	Text string
	Tone Tone
}

// A Table is columns of text for people. Columns that hold only numbers stand
// to the right.
type Table struct {
	header  []string
	rows    [][]Cell
	numeric []bool
}

// NewTable returns a table with a header, or without one: then the first
// column names what stands beside it.
func NewTable(header ...string) *Table { return &Table{header: header} }

// Row adds a row of Cells and other values.
func (tb *Table) Row(cells ...any) {
	row := make([]Cell, len(cells))
	for i, c := range cells {
		if len(tb.numeric) <= i {
			tb.numeric = append(tb.numeric, true)
		}
		switch c := c.(type) {
		case Cell:
			row[i] = c
			tb.numeric[i] = false
		case int, int64:
			row[i].Text = fmt.Sprint(c)
		default: // an empty text stands for a number that there is not
			row[i].Text = fmt.Sprint(c)
			tb.numeric[i] = tb.numeric[i] && row[i].Text == ""
		}
		row[i].Text = Clean(row[i].Text)
		if len(tb.header) == 0 && i == 0 && row[i].Tone == Plain {
			row[i].Tone = Dim
		}
	}
	tb.rows = append(tb.rows, row)
}

// Len returns the number of rows.
func (tb *Table) Len() int { return len(tb.rows) }

const columnGap = 2

// Table writes a table to the output.
func (t *Term) Table(tb *Table) error {
	r := t.renderer()
	styles := map[Tone]lipgloss.Style{
		Plain: r.NewStyle(), Good: r.NewStyle().Foreground(lipgloss.Color("2")), Bad: r.NewStyle().Foreground(lipgloss.Color("1")).Bold(true),
		Warn: r.NewStyle().Foreground(lipgloss.Color("3")), Dim: r.NewStyle().Faint(true),
	}
	head := r.NewStyle().Bold(true)
	widths := tb.widths()
	var b strings.Builder
	line := func(cells []Cell, style func(Cell) lipgloss.Style) {
		pad := 0 // written only when something follows
		for i, c := range cells {
			gap := widths[i] - lipgloss.Width(c.Text)
			left := 0
			if i < len(tb.numeric) && tb.numeric[i] && len(tb.rows) > 0 {
				left, gap = gap, 0
			}
			if c.Text != "" {
				b.WriteString(strings.Repeat(" ", pad+left))
				b.WriteString(style(c).Render(c.Text))
				pad = 0
			} else {
				pad += left
			}
			pad += gap + columnGap
		}
		b.WriteByte('\n')
	}
	if len(tb.header) > 0 {
		cells := make([]Cell, len(tb.header))
		for i, h := range tb.header {
			cells[i].Text = h
		}
		line(cells, func(Cell) lipgloss.Style { return head })
	}
	for _, row := range tb.rows {
		line(row, func(c Cell) lipgloss.Style { return styles[c.Tone] })
	}
	_, err := io.WriteString(t.Out, b.String())
	return err
}

func (tb *Table) widths() []int {
	widths := make([]int, max(len(tb.header), len(tb.numeric)))
	for i, h := range tb.header {
		widths[i] = lipgloss.Width(h)
	}
	for _, row := range tb.rows {
		for i, c := range row {
			widths[i] = max(widths[i], lipgloss.Width(c.Text))
		}
	}
	return widths
}

// Clean returns text in which control characters are written as escapes, so
// that what is stored cannot steer a terminal or end a line.
func Clean(s string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hidden reports control characters and those that change the direction of
// what follows.
func hidden(r rune) bool {
	return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Cut shortens a text to at most n columns or so, for a table.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n-1]) + "…"
}
