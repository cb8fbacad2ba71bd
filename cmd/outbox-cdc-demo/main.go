// Command outbox-cdc-demo shows the whole path, live, in one process. See outbox-cdc-demo --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/outbox-cdc/outbox-cdc/internal/demo"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal asks to stop, a second one ends the process
	os.Exit(demo.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
