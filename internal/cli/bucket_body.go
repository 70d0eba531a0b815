package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/davidwkeith/dwk/durable"
)

func newBucketGet(e *env) *cobra.Command {
	var offset, length int64
	cmd := &cobra.Command{
		Use:   "get BINDING KEY [FILE]",
		Short: "Write a body to the output or a file",
		Long: `Write the body of a key, or a part of it, to the output or to a file, which comes to
be only when the body is complete. Exits 3 when there is no such key.`,
		Example: `  dwk bucket get LAB_FILES photos/1.jpg 1.jpg
  dwk bucket get LAB_FILES log.txt --offset -1000`,
		Args:              arguments("BINDING", "KEY", "[FILE]"),
		ValidArgsFunction: e.bindings("buckets"),
	}
	cmd.Flags().Int64Var(&offset, "offset", 0, "begin at byte `N`; a negative one counts from the end")
	cmd.Flags().Int64Var(&length, "length", 0, "at most `N` bytes; 0 is to the end")
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		if length < 0 {
			return usagef("--length must not be negative")
		}
		ctx, cancel := e.boundIfAsked(ctx)
		defer cancel()
		b, err := e.openBucket(args[0])
		if err != nil {
			return err
		}
		defer b.Close()
		body, info, err := b.Get(ctx, args[1], durable.GetOptions{Offset: offset, Length: length})
		if err != nil {
			return noKey(err, args[0], args[1])
		}
		defer body.Close()
		if len(args) < 3 || args[2] == "-" {
			_, err := io.Copy(e.term.Out, body)
			return err
		}
		if err := writeFile(args[2], func(w io.Writer) error { _, err := io.Copy(w, body); return err }); err != nil {
			return err
		}
		return showBody(e.term, info)
	})
	return cmd
}

func newBucketPut(e *env) *cobra.Command {
	var opts durable.PutOptions
	var meta []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "put BINDING KEY FILE",
		Short: "Store a file",
		Long: `Store a file, or with - the standard input, under a key. It asks before it replaces a
body; with --if-absent it never does, and exits 1 when the key exists.`,
		Example: `  dwk bucket put LAB_FILES photos/1.jpg 1.jpg --content-type image/jpeg --meta by=me --yes
  tar c . | dwk bucket put LAB_FILES backup.tar - --if-absent`,
		Args:              arguments("BINDING", "KEY", "FILE"),
		ValidArgsFunction: e.bindings("buckets"),
	}
	cmd.Flags().StringVar(&opts.ContentType, "content-type", "", "content `TYPE` of the body")
	cmd.Flags().StringArrayVar(&meta, "meta", nil, "metadata, `NAME=VALUE`; may be repeated")
	cmd.Flags().BoolVar(&opts.IfAbsent, "if-absent", false, "only when the key is new")
	yesFlag(cmd, &yes)
	cmd.RunE = e.run(func(ctx context.Context, args []string) error {
		for _, m := range meta {
			name, value, ok := strings.Cut(m, "=")
			if !ok {
				return usagef("--meta %q is not NAME=VALUE", m)
			}
			if opts.Metadata == nil {
				opts.Metadata = map[string]string{}
			}
			opts.Metadata[name] = value
		}
		ctx, cancel := e.boundIfAsked(ctx)
		defer cancel()
		in, closeIn, err := e.input(args[2], "")
		if err != nil {
			return err
		}
		defer closeIn()
		b, err := e.openBucket(args[0])
		if err != nil {
			return err
		}
		defer b.Close()
		if !opts.IfAbsent {
			if old, err := b.Head(ctx, args[1]); err == nil {
				if err := e.confirm(ctx, yes, "Replace %q of %d bytes in bucket %s?", args[1], old.Size, args[0]); err != nil {
					return err
				}
			}
		}
		info, err := b.Put(ctx, args[1], in, opts)
		if err != nil {
			return err
		}
		return showBody(e.term, info)
	})
	return cmd
}
