package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Groups of commands, as the help shows them.
const (
	groupRun    = "run"
	groupLook   = "look"
	groupConfig = "config"
)

func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "dwk",
		Short: "Durable objects on a fleet of replicas",
		Long: `dwk runs durable objects as a fleet: identical, disposable replicas whose state
is in a libSQL server and an object store. It is both the replica (dwk serve)
and what operators look after a fleet with.

Without any configuration it works on files in ./data.

Exit status: 0 done, 1 failed or found something wrong, 2 wrong usage or
configuration, 3 the named thing does not exist, 4 partly done, 5 a store could
not be reached, 130 interrupted.`,
		Example: `  dwk serve                            run a replica
  dwk dev                              run a whole fleet, to try things
  dwk fleet status                     how is the fleet?
  dwk probe                            are the stores all right?
  dwk lease inspect Counter --name a   who runs this object?
  dwk kv list --prefix '["dwk_lease"]' what is stored?`,
		Version:       buildInfo().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run a fleet:"}, &cobra.Group{ID: groupLook, Title: "Look into the stores and change them:"},
		&cobra.Group{ID: groupConfig, Title: "Set-up and help:"})
	for _, c := range []struct {
		group string
		cmd   *cobra.Command
	}{
		{groupRun, newServe(e)},
		{groupRun, newDev(e)},
		{groupRun, newFleet(e)},
		{groupRun, newDrain(e)},
		{groupRun, newProbe(e)},
		{groupRun, newBench(e)},
		{groupLook, newAudit(e)},
		{groupLook, newKV(e)},
		{groupLook, newObject(e)},
		{groupLook, newAlarm(e)},
		{groupLook, newLease(e)},
		{groupLook, newQueue(e)},
		{groupLook, newCron(e)},
		{groupLook, newSQL(e)},
		{groupLook, newBucket(e)},
		{groupLook, newMigrate(e)},
		{groupConfig, newConfig(e)},
		{groupConfig, newVersion(e)},
	} {
		c.cmd.GroupID = c.group
		root.AddCommand(c.cmd)
	}
	if cmd := newApp(e); cmd.HasSubCommands() {
		cmd.GroupID = groupLook
		root.AddCommand(cmd)
	}
	root.SetHelpCommandGroupID(groupConfig)
	root.SetCompletionCommandGroupID(groupConfig)
	root.SetVersionTemplate("dwk {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	// A command that only has commands below it is run to say so.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	e.globals(root.PersistentFlags())
	must(root.RegisterFlagCompletionFunc("output", fixed("table", "json")))
	return root
}
