package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/host"
	"github.com/davidwkeith/dwk/internal/mode"
	"github.com/davidwkeith/dwk/internal/object/objlog"
	"github.com/davidwkeith/dwk/internal/objectops"
)

func newObject(e *env) *cobra.Command {
	return group("object", "Stored objects: look into them, bring them back", `Look into stored objects, export them, bring them back to an earlier state,
delete them. All of it works on the stores, whether a replica runs or not.

What only looks takes no lease and disturbs nobody. What changes an object takes
its lease, like an event, and is one commit: everything happens or nothing does.`,
		newObjectClasses(e), newObjectList(e), newObjectInfo(e), newObjectHistory(e),
		newObjectSQL(e), newObjectExport(e), newObjectRestore(e), newObjectDelete(e))
}

// objectArgs name one object, and what follows it.
type objectArgs struct {
	objectFlags
	rest []string
}

func (o *objectArgs) register(e *env, cmd *cobra.Command, rest ...string) {
	o.objectFlags.register(e, cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		names := []string{"CLASS", "ID"}
		if cmd.Flags().Changed("name") {
			names = names[:1]
		}
		return arguments(append(names, rest...)...)(cmd, args)
	}
	if len(rest) > 0 && rest[0] == "FILE" {
		objects := e.objects()
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 || len(args) == 1 && cmd.Flags().Changed("name") {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return objects(cmd, args, begun)
		}
	}
}

func (o *objectArgs) read(cmd *cobra.Command, args []string) error {
	n := 2
	if cmd.Flags().Changed("name") {
		n = 1
	}
	o.rest = args[n:]
	return o.objectFlags.read(cmd, args[:n])
}

// objectStores are the stores of a command about objects.
type objectStores struct {
	*host.Stores
	*objectops.Ops
	files *host.Files
}

// openObjects opens the stores. A change is refused where a replica would not
// serve.
func (e *env) openObjects(ctx context.Context, change bool) (*objectStores, error) {
	s, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	marker, id, err := mode.Read(ctx, s.KV)
	switch {
	case err != nil || !change:
	case marker == "" && id.ID == "":
		err = fmt.Errorf("%w (%s)", host.ErrNoStore, s.DB)
	default:
		err = mode.Check(marker, id)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	files := s.Files(id.ID)
	return &objectStores{Stores: s, files: files, Ops: objectops.New(objectops.Config{
		Store: s.KV, Blobs: files, StoreID: id.ID, LeaseTTL: s.Config.Lease.TTL, InlineLimit: int64(s.Config.Objects.InlineLimit), MaxSize: int64(s.Config.Objects.MaxSize),
	})}, nil
}

func (s *objectStores) Close() error { return errors.Join(s.files.Close(), s.Stores.Close()) }

// targetFlag is a state of an object on the command line.
type targetFlag struct {
	objectops.Target
	text string
}

func (t *targetFlag) String() string { return t.text }

func (t *targetFlag) Set(text string) (err error) {
	t.text = text
	t.Target, err = objectops.ParseTarget(text)
	return err
}

func (t *targetFlag) Type() string { return "TXID|TIME" }

// targetHelp explains a targetFlag.
const targetHelp = `a commit such as 41, a time such as 2006-01-02T15:04:05Z, or so long ago, such as 15m: the last kept commit then`

const defaultWait = 10 * time.Second

// waitFlag adds how long to wait for the lease.
func waitFlag(cmd *cobra.Command, wait *optionalDuration) {
	wait.d = defaultWait
	cmd.Flags().Var(wait, "wait", "how long to wait for the object's lease (default 10s)")
}

// ageOf is how long ago ms was at now, both in epoch milliseconds.
func ageOf(now, ms int64) string { return short(time.Duration(now-ms) * time.Millisecond) }

// changeHint says what to do about a change that failed.
func changeHint(err error, o objectFlags) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, durable.ErrUnknownOutcome):
		return withHint(err, "whether it was done is not known; look with: dwk object info %s %s", o.class, o.id)
	case errors.Is(err, objectops.ErrChanged):
		return withHint(err, "look again, and repeat it")
	case errors.Is(err, objectops.ErrTooLarge):
		return withHint(err, "objects.max_size sets the bound; give the replicas the same")
	}
	if _, ok := errors.AsType[*durable.ContendedError](err); ok {
		return withHint(err, "look with: dwk lease inspect %s %s; wait longer with --wait", o.class, o.id)
	}
	return err
}

// notKept adds where to look for the positions that there are.
func notKept(err error, o objectFlags) error {
	if errors.Is(err, objectops.ErrNotKept) {
		return withHint(err, "see what is kept with: dwk object history %s %s", o.class, o.id)
	}
	return err
}

// positionJSON is a position as commands write it.
type positionJSON struct {
	TXID     uint64 `json:"txid"`
	At       int64  `json:"at"`
	Size     int64  `json:"size"`
	CommitID string `json:"commit_id"`
}

func positionAsJSON(p objlog.Position) positionJSON {
	return positionJSON{p.TXID, p.At, p.Size, p.CommitID}
}
