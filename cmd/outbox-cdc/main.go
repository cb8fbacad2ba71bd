// Command outbox-cdc relays a Postgres outbox table to Kafka. See outbox-cdc --help.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
)

func main() {
	runtime.MemProfileRate = 0 // nothing reads the profile, but its samples touch pages all over the binary
	log.SetOutput(io.Discard)  // package net/http writes there what a server has sent unasked; ours is log/slog
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	os.Exit(cli.Main(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
