package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/internal/kv"
	"github.com/davidwkeith/dwk/internal/kv/tuple"
	"github.com/davidwkeith/dwk/internal/term"
)

// maxValue bounds a value that is read from the command line, in bytes.
const maxValue = 1 << 20

type kvSetOptions struct {
	key       tuple.Key
	value     json.RawMessage
	ttl       optionalDuration
	ifAbsent  bool
	ifVersion stampFlag
	yes       bool
}

func newKVSet(e *env) *cobra.Command {
	var o kvSetOptions
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Write one entry",
		Long: `Write one entry. VALUE is JSON text, or - for standard input.

With --if-absent or --if-version the entry is written only when it is not there,
or still has that versionstamp; else nothing is changed and the exit code is 1.

Keys that begin with "dwk_" belong to the fleet: a wrong value there can stop
objects from running. A lease cannot be written without --ttl.`,
		Example: `  dwk kv set '["greeting"]' '"hello"' --yes
  dwk kv set '["n"]' 2 --if-version 00000000000000000041 --yes
  echo '{"a":1}' | dwk kv set '["x"]' - --ttl 10m --yes`,
		Args: arguments("KEY", "VALUE"),
	}
	f := cmd.Flags()
	f.Var(&o.ttl, "ttl", "the entry expires after this time")
	f.BoolVar(&o.ifAbsent, "if-absent", false, "only when there is no such entry")
	f.Var(&o.ifVersion, "if-version", "only when the entry has this versionstamp")
	yesFlag(cmd, &o.yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) (err error) {
		if err := exclusive(cmd, "if-absent", "if-version"); err != nil {
			return err
		}
		if o.key, err = parseKey("KEY", args[0]); err != nil {
			return err
		}
		if o.value, err = readValue(e.term.In, args[1]); err != nil {
			return err
		}
		if o.ttl.set && o.ttl.d < time.Millisecond {
			return usagef("--ttl must be at least a millisecond")
		}
		if isLease(o.key) && !o.ttl.set {
			return usagef("%s: a lease without expiry would block its object for ever: add --ttl", o.key)
		}
		return runKVSet(ctx, e, o)
	})
	return cmd
}

// readValue returns the JSON text that an argument stands for.
func readValue(in io.Reader, arg string) (json.RawMessage, error) {
	text := []byte(arg)
	if arg == "-" {
		var err error
		if text, err = io.ReadAll(io.LimitReader(in, maxValue+1)); err != nil {
			return nil, fmt.Errorf("read VALUE from standard input: %w", err)
		}
	}
	if len(text) > maxValue {
		return nil, usagef("VALUE is larger than %d bytes", maxValue)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return nil, withHint(usagef("VALUE is not JSON: %w", err), `a text is written in quotes: '"hello"'`)
	}
	return out.Bytes(), nil
}

func runKVSet(ctx context.Context, e *env, o kvSetOptions) error {
	call, cancel := e.bound(ctx)
	defer cancel()
	s, err := e.open(call)
	if err != nil {
		return err
	}
	defer s.Close()
	check := o.ifAbsent || o.ifVersion.set
	if !o.yes {
		// What is confirmed is a change of what is shown.
		shown, there, err := s.KV.Get(call, o.key)
		if err != nil {
			return err
		}
		if err := e.confirm(ctx, false, "%s", setQuestion(o, shown, there)); err != nil {
			return err
		}
		if !check {
			check, o.ifVersion.stamp = true, shown.Stamp
		}
	}
	call, cancel = e.bound(ctx)
	defer cancel()
	plan := kv.NewPlan()
	if check {
		err = plan.CheckKey(o.key, o.ifVersion.stamp)
	}
	if err := errors.Join(err, plan.SetKey(o.key, o.value, o.ttl.d)); err != nil {
		return usageError{err}
	}
	expires := plan.Add(`SELECT expires_at FROM kv WHERE k = ?`, tuple.MustEncode(o.key...))
	v, err := s.KV.Commit(call, plan)
	if err != nil {
		return fmt.Errorf("set %s: %w", o.key, err)
	}
	if !v.OK {
		return conflict(call, s.KV, o.key)
	}
	written := kv.Entry{Key: o.key, Value: o.value, Stamp: v.Stamp}
	written.ExpiresAt, _ = v.Results[expires].Rows[0][0].(int64)
	return showEntry(e.term, written)
}

func setQuestion(o kvSetOptions, shown kv.Entry, there bool) string {
	q := fmt.Sprintf("Write %s = %s, which is not there now?", o.key, term.Cut(string(o.value), tableValue))
	if there {
		q = fmt.Sprintf("Write %s = %s over %s (versionstamp %s)?", o.key, term.Cut(string(o.value), tableValue), term.Cut(string(shown.Value), tableValue), shown.Stamp)
	}
	if isSystem(o.key) {
		q = "This key belongs to the fleet. " + q
	}
	return q
}

// conflict says what is there instead of what was expected.
func conflict(ctx context.Context, s *kv.Store, key tuple.Key) error {
	e, there, err := s.Get(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not as expected, nothing was changed", key)
	case !there:
		return fmt.Errorf("%s is not there, nothing was changed", key)
	default:
		return fmt.Errorf("%s has versionstamp %s, nothing was changed", key, e.Stamp)
	}
}
