package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/write"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
)

// writeCommand is the subcommand that measures the writer's side.
func writeCommand(environ []string, stdout, stderr io.Writer) *cobra.Command {
	var o write.Options
	cmd := &cobra.Command{
		Use:   "write",
		Short: "Measure what an event costs the transaction that writes it",
		Long: `Write measures pgbench's TPC-B-like transaction with and without one event, on a Postgres that it starts
itself: once where a commit waits for nothing, once where it waits for 4 ms. The ways to write an event
take turns in many short rounds; figures are medians of the ratios within a round. It takes seven minutes.`,
		Example: `  outbox-cdc-bench write
  outbox-cdc-bench write --rounds 5 --scale 1`,
		Args: command.NoArgs,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&o.Rounds, "rounds", 100, "rounds of all ways to write")
	flags.DurationVar(&o.Round, "round", 250*time.Millisecond, "how long one of them has in a round")
	flags.IntVar(&o.Clients, "clients", 8, "transactions at a time")
	flags.IntVar(&o.Scale, "scale", 8, "100,000 accounts each; at least --clients, or these wait for each other")
	flags.IntVar(&o.Major, "postgres", 0, "major `version` of the Postgres to start; 0 is any that is installed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Rounds < 1 || o.Round <= 0 || o.Clients < 1 || o.Scale < 1 {
			return command.Usage(cmd, errors.New("--rounds, --round, --clients and --scale must be positive"))
		}
		return runWrite(cmd.Context(), o, environ, stdout, stderr)
	}
	return cmd
}

func runWrite(ctx context.Context, o write.Options, environ []string, stdout, stderr io.Writer) error {
	progress := command.NewProgress(stderr, environ, slog.New(slog.NewTextHandler(stderr, nil)))
	progress.Phase = "rounds"
	results, err := write.Run(ctx, o, func(server string, done int) { progress.Show(ctx, server, done, o.Rounds) })
	progress.End()
	if err != nil {
		return command.Failed(err)
	}
	for _, r := range results {
		if _, err := io.WriteString(stdout, writeMarkdown(r, o)); err != nil {
			return command.Failed(err)
		}
	}
	return nil
}

func writeMarkdown(r write.Result, o write.Options) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s: Postgres %s, %d clients, scale %d, %d rounds of %v; without an event %.0f transactions/s, commit p99 %s, %.0f bytes of WAL each\n\n",
		r.Server, r.Postgres, o.Clients, o.Scale, o.Rounds, o.Round, r.PerSecond, r.P99.Round(time.Microsecond), r.WAL)
	t := newTable(&text, "event", "throughput", "middle half of the rounds", "server's CPU", "client's CPU", "commit p50", "commit p99", "WAL, bytes more")
	for _, e := range r.Events {
		t.row(e.Name, fmt.Sprintf("%.3f", e.Throughput), fmt.Sprintf("%.3f to %.3f", e.Low, e.High),
			fmt.Sprintf("%.2f", e.ServerCPU), fmt.Sprintf("%.2f", e.ClientCPU),
			fmt.Sprintf("%.2f", e.CommitP50), fmt.Sprintf("%.2f", e.CommitP99), fmt.Sprintf("%.0f", e.WALMore))
	}
	return text.String()
}
