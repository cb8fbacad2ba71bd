package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func (a *app) run() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay the outbox to Kafka until told to stop",
		Long: `Run relays committed rows to Kafka until it gets SIGINT or SIGTERM, or meets something only a
person can mend. It then lets everything sent be acknowledged before it ends; a second signal
ends it at once. At SIGHUP it loads its configuration again: secrets and log.level are in force then,
and what else has changed is named in the log, for the next start.

Publication and slot are created if neither exists yet; outbox-cdc setup does it beforehand. Any
number of processes may run with the same slot: one relays, the others stand by.`,
		Example: `  outbox-cdc run -c outbox-cdc.yaml
  outbox-cdc run --dsn postgres://cdc@db/app --publication outbox_cdc --slot outbox_cdc --brokers kafka-1:9092,kafka-2:9092`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", "brokers")
	acceptGap := cmd.Flags().Bool("accept-gap", false, "start although the slot does not continue where the recorded position ends (exit 15); for one start")
	skipTo := lsnFlag(cmd, "skip-to", "do not send transactions that end at this `LSN` or before (16/B374D848); for one start")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reload := newReloader(func() (*config.Config, error) { return s.Load(a.environ) })
		defer reload.close()
		cfg, err := s.Load(a.environ)
		if err != nil {
			return command.Failed(err)
		}
		return a.relay(cmd.Context(), cfg, reload, *acceptGap, *skipTo)
	}
	return cmd
}

// An lsnValue is the value of a flag that is a position in the log.
type lsnValue pglogrepl.LSN

func lsnFlag(cmd *cobra.Command, name, usage string) *pglogrepl.LSN {
	lsn := new(pglogrepl.LSN)
	cmd.Flags().Var((*lsnValue)(lsn), name, usage)
	return lsn
}

// String implements pflag.Value: empty for none.
func (v *lsnValue) String() string {
	if *v == 0 {
		return ""
	}
	return pglogrepl.LSN(*v).String()
}

// lsnText is what a position looks like: ParseLSN does not look at what follows it.
var lsnText = regexp.MustCompile(`^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$`)

// Set implements pflag.Value.
func (v *lsnValue) Set(text string) error {
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil || lsn == 0 || !lsnText.MatchString(text) {
		return errors.New("it must be a position as Postgres prints it, for instance 16/B374D848")
	}
	*v = lsnValue(lsn)
	return nil
}

// Type implements pflag.Value.
func (v *lsnValue) Type() string { return "LSN" }

// relay runs the relay that cfg describes.
func (a *app) relay(ctx context.Context, cfg *config.Config, reload *reloader, acceptGap bool, skipTo pglogrepl.LSN) error {
	relayCfg, err := cfg.Relay()
	if err != nil {
		return command.Failed(err)
	}
	relayCfg.AcceptGap, relayCfg.SkipTo = acceptGap, skipTo
	a.limitMemory(cfg.Sink.Kafka.Window.Bytes)
	log := reload.logger(cfg.Log, a.stderr)
	page, err := a.admin(ctx, cfg, &relayCfg, log)
	if err != nil {
		return err
	}
	if relayCfg.Tracer, err = cfg.Tracer(command.Version().Module, log); err != nil {
		return command.Failed(err)
	}
	r, err := relay.New(relayCfg, log)
	if err != nil {
		return command.Failed(err)
	}
	source := command.Address(relayCfg.Source.Conn)
	log.InfoContext(ctx, "starting",
		slog.String("version", command.Version().Module), slog.String("name", relayCfg.Name),
		slog.String("source", source),
		slog.String("publication", relayCfg.Source.Publication), slog.String("slot", relayCfg.Source.Slot),
		slog.String("brokers", strings.Join(cfg.Sink.Kafka.Brokers, ",")))
	for _, warning := range cfg.Warnings() {
		log.WarnContext(ctx, "configuration", slog.String("problem", warning))
	}

	defer reload.during(ctx, cfg, log)()
	start := time.Now()
	enough := checkBeside(ctx, relayCfg, log)
	err = traced(ctx, relayCfg.Tracer, relayCfg.DrainTimeout, log, func() error { return page.during(ctx, r) })
	enough()
	st := r.Stat()
	logStop(ctx, log, err, &st, time.Since(start))
	if err == nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{
		fmt.Sprintf("source: %s, publication %s, slot %s", source, relayCfg.Source.Publication, relayCfg.Source.Slot),
		"sink: " + relayCfg.Sink.String(),
	}
	f.Advice = strings.NewReplacer("<slot>", relayCfg.Source.Slot, "<publication>", relayCfg.Source.Publication).Replace(f.Advice)
	f.Object, f.LSN = "slot "+relayCfg.Source.Slot, st.Confirmed
	if gap, ok := errors.AsType[*checkpoint.GapError](err); ok {
		f.LSN = gap.Recorded.EndLSN
	}
	if f.Exit == relay.ExitSink {
		f.Object = relayCfg.Sink.String()
	}
	return f
}

// logStop logs that the relay has stopped, at level ERROR and with the reason if it failed: the block that
// command.Run writes to stderr is not a line that a log pipeline can read.
func logStop(ctx context.Context, log *slog.Logger, err error, st *relay.Stat, uptime time.Duration) {
	exit := command.ExitCode(err)
	attrs := []slog.Attr{
		slog.Int("exit_code", exit), slog.String("confirmed", st.Confirmed.String()),
		slog.Uint64("rows", st.Rows), slog.String("uptime", uptime.Round(time.Millisecond).String()),
	}
	level := slog.LevelInfo
	if exit != relay.ExitOK {
		level = slog.LevelError
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", replication.HideSettings(err)))
	}
	log.LogAttrs(ctx, level, "stopped", attrs...)
}

// heapBesideWindow is what the relay needs beside the sink's window: the reader's batches,
// the request being encoded, and some room for the garbage collector to work in.
const heapBesideWindow = 14 << 20

// limitMemory makes the garbage collector hold the process near what it needs. Without a
// limit it lets the heap grow to twice what is in use, and a full window is most of it. It
// is a soft limit: one very large row passes it for as long as it is in memory. GOMEMLIMIT,
// if set, wins.
func (a *app) limitMemory(window int) {
	if command.Getenv(a.environ, "GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(window) + heapBesideWindow)
	}
}
