package cli

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

// fixed completes from a list.
func fixed(names ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)
}

// classes completes the first argument, or a flag's, with the classes of the
// applications in this program.
func (e *env) classes(flag bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, app := range e.opts.Apps {
			names = append(names, slices.Sorted(maps.Keys(app.Classes))...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// must is for errors that only a mistake in this package makes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
