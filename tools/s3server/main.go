// The command s3server is versitygw, an S3 server with authentication, on a
// directory: what tests run as a process of its own. It leaves out the parts of
// versitygw's own command that serve from other stores, a third of its build.
//
// It ends with its standard input, so that it never outlives a test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	var cfg embedgw.Config
	var listen, dir string
	flag.StringVar(&listen, "listen", "", "`host:port` of the listener")
	flag.StringVar(&dir, "dir", "", "absolute `directory` of all files")
	flag.StringVar(&cfg.Region, "region", "", "`region` that requests are signed for")
	flag.StringVar(&cfg.VirtualDomain, "virtual-domain", "", "`domain` below which hosts are names of buckets")
	flag.StringVar(&cfg.HealthPath, "health", "", "`path` that answers when the server is up")
	flag.Parse()
	cfg.Ports = []string{listen}
	cfg.RootUserAccess, cfg.RootUserSecret = os.Getenv("ROOT_ACCESS_KEY"), os.Getenv("ROOT_SECRET_KEY")
	if err := serve(dir, cfg); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func serve(dir string, cfg embedgw.Config) error {
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	facts, err := facts(dir, root)
	if err != nil {
		return err
	}
	// These are the values of versitygw's command.
	opts := posix.PosixOpts{Concurrency: 5000, CopyObjectThreshold: 5 << 30}
	cfg.MaxConnections, cfg.MaxRequests, cfg.MultipartMaxParts = 250_000, 100_000, 10_000
	cfg.KeepAlive, cfg.Quiet = true, true
	be, err := posix.New(root, facts, opts)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until its end
		stop()
	}()
	return embedgw.RunVersityGW(ctx, be, &cfg)
}

// facts is where what is known about bodies is kept: in attributes of their
// files, or beside them where the file system has none.
func facts(dir, root string) (meta.MetadataStorer, error) {
	attributes := meta.XattrMeta{}
	err := attributes.Test(root)
	if err == nil {
		return attributes, nil
	}
	fmt.Fprintln(os.Stderr, "s3server: facts are kept beside the files:", err)
	beside := filepath.Join(dir, "facts")
	if err := os.MkdirAll(beside, 0o700); err != nil {
		return nil, err
	}
	return meta.NewSideCar(beside)
}
