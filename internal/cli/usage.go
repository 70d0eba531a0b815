package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// arguments demands positional arguments by name; one in brackets may be left
// out.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		for _, name := range names[min(len(args), len(names)):] {
			if !strings.HasPrefix(name, "[") {
				return usagef("%s is missing", name)
			}
		}
		many := len(names) > 0 && strings.Contains(names[len(names)-1], "...")
		if len(args) > len(names) && !many {
			return usagef("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// group returns a command that only has commands below it.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return usagef("a command is missing: %s", strings.Join(commandNames(cmd), ", "))
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	for cmd.SuggestionsMinimumDistance = 1; cmd.SuggestionsMinimumDistance <= 2; cmd.SuggestionsMinimumDistance++ {
		if near := cmd.SuggestionsFor(name); len(near) > 0 {
			return withHint(usageError{err}, "did you mean %s? see: %s --help", strings.Join(near, " or "), cmd.CommandPath())
		}
	}
	return usageError{err}
}

// flagError is told about flags that could not be parsed. What follows a word
// that is no command is that command's business.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words[0])
	}
	return usageError{err}
}

// asksForJSON looks for --output json where the arguments could not be parsed.
func asksForJSON(args []string) bool {
	for i, a := range args {
		switch a {
		case "--":
			return false
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == "json" {
				return true
			}
		}
	}
	return false
}

// exclusive refuses more than one of the flags.
func exclusive(cmd *cobra.Command, names ...string) error {
	set := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !cmd.Flags().Changed(n) })
	if len(set) > 1 {
		return usageError{errors.New("--" + strings.Join(set, " and --") + " do not go together")}
	}
	return nil
}

// plural writes a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
