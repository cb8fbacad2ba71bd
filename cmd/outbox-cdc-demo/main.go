// Command outbox-cdc-demo runs the relay with Postgres, a broker, a writer and a consumer in one process. See
// outbox-cdc-demo --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/internal/demo"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	run, args := demo.Main, os.Args[1:]
	if len(args) > 0 && args[0] == demo.RelayCommand { // a relay of a demo with --chaos
		run, args[0] = cli.Main, "run"
	}
	os.Exit(run(ctx, args, os.Environ(), os.Stdout, os.Stderr))
}
