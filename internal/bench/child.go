package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/broker"
	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// This program also is the processes that a measurement needs beside the relay: the subcommands of this file, which are not for
// people.

const programName = "outbox-cdc-bench"

// publishName is the subcommand that publishes rows with the broker's client library.
const publishName = "publish"

func publishCommand(environ []string) *cobra.Command {
	return &cobra.Command{
		Use: publishName + " dir", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := publish(cmd.Context(), args[0], environ); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
}

func publish(ctx context.Context, dir string, environ []string) error {
	cfg, err := config.Load(config.Sources{File: filepath.Join(dir, "outbox-cdc.yaml"), Environ: environ})
	if err != nil {
		return err
	}
	to, err := broker.New(cfg)
	if err != nil {
		return err
	}
	p, err := to.Producer(ctx)
	if err != nil {
		return err
	}
	return measure.Publish(ctx, dir, os.Stdin, p)
}

const (
	natsReady = 30 * time.Second
	natsRetry = 20 * time.Millisecond
)

func natsCommand() *cobra.Command {
	return &cobra.Command{
		Use: natsName + " port dir", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := serveNATS(cmd.Context(), args[0], args[1]); err != nil {
				return command.Failed(err)
			}
			return nil
		},
	}
}

// serveNATS runs a NATS server with JetStream until ctx is done.
func serveNATS(ctx context.Context, port, dir string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: programName, Host: "127.0.0.1", Port: number, NoLog: true, NoSigs: true, JetStream: true, StoreDir: dir,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(natsReady) {
		return errors.New("the NATS server does not accept connections")
	}
	<-ctx.Done()
	return nil
}
