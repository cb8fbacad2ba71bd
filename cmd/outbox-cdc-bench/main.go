// Command outbox-cdc-bench measures the relay. See outbox-cdc-bench --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(bench.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
