// Command outbox-cdc-demo runs the relay with Postgres, a broker, a writer and a consumer in one process. See
// outbox-cdc-demo --help.
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
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(demo.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
