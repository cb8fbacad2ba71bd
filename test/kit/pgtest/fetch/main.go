// Fetch downloads the server programs of the given major versions of Postgres into
// the user's cache, where package pgtest finds them:
//
//	go run ./test/kit/pgtest/fetch 14 16 17 18
//
// It prints one line per major version: the version and the directory. The argument complete stands for a Postgres of
// the newest major version with all client programs, which package pgtest finds if OUTBOX_TEST_PG_UPGRADE has its directory:
//
//	OUTBOX_TEST_PG_UPGRADE=$(go run ./test/kit/pgtest/fetch complete | cut -d' ' -f2)
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		stop()
		os.Exit(1) //nolint:gocritic // main
	}
}

func run(ctx context.Context, versions []string, stdout, stderr io.Writer) error {
	if len(versions) == 0 {
		return errors.New("usage: fetch MAJOR… | complete")
	}
	for _, arg := range versions {
		if arg == "complete" {
			install, err := pgserver.FetchComplete(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, install, install.BinDir)
			continue
		}
		major, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("%q is not a major version", arg)
		}
		install, err := pgserver.Fetch(ctx, major, progress(stderr, major))
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, install, install.BinDir)
	}
	return nil
}

// progress returns a report function that writes a line every second.
func progress(w io.Writer, major int) func(pgserver.Progress) {
	var last time.Time
	return func(p pgserver.Progress) {
		if !p.Unpacking && time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		if p.Unpacking {
			fmt.Fprintf(w, "Postgres %d: unpacking\n", major)
			return
		}
		fmt.Fprintf(w, "Postgres %d: %.1f of %.1f MB\n", major, float64(p.Bytes)/1e6, float64(p.Total)/1e6)
	}
}
