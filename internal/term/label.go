package term

import "github.com/charmbracelet/lipgloss"

// labels are the colours of labels: those that show on any background.
var labels = []lipgloss.Color{"6", "5", "3", "2", "4", "1"}

// Label returns a name that stands before lines of one of several sources, in a
// colour of its own when colours are shown.
func (t *Term) Label(n int, name string) string {
	return t.renderer().NewStyle().Foreground(labels[n%len(labels)]).Render(name + " |")
}
