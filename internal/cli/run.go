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
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func (a *app) run() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the relay",
		Long: `Run sends committed rows to the broker until it gets SIGINT or SIGTERM, or an error that needs a fix. On a
signal it waits until the broker has acknowledged the records in flight; a second signal stops it at once.
If Postgres or the broker becomes unavailable, run retries; at the start it gives up after startup_timeout.

If neither the publication nor the slot exists, run creates both; outbox-cdc setup creates them
beforehand. Several relays can run with the same slot: one streams, the others wait as standbys.

On SIGHUP run reloads the configuration. Secrets and log.level take effect immediately; the log names
changed keys that need a restart.`,
		Example: `  outbox-cdc run -c outbox-cdc.yaml
  outbox-cdc run --dsn postgres://cdc@db/app --brokers kafka-1:9092,kafka-2:9092`,
		Args: command.NoArgs,
	}
	s := command.ConfigFlags(cmd, "dsn", "publication", "slot", command.Sink)
	acceptGap := cmd.Flags().Bool("accept-gap", false, "start although the slot does not continue at the recorded position (exit 15), or the publication has changed since (exit 13); for one start only")
	skipTo := lsnFlag(cmd, "skip-to", "do not send transactions that end at or before this `LSN`, such as 16/B374D848; for one start only")
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

// An lsnValue is the value of a flag for a WAL position.
type lsnValue pglogrepl.LSN

func lsnFlag(cmd *cobra.Command, name, usage string) *pglogrepl.LSN {
	lsn := new(pglogrepl.LSN)
	cmd.Flags().Var((*lsnValue)(lsn), name, usage)
	return lsn
}

// String implements pflag.Value. It is empty for 0.
func (v *lsnValue) String() string {
	if *v == 0 {
		return ""
	}
	return pglogrepl.LSN(*v).String()
}

// lsnText matches a position. ParseLSN would ignore text after it.
var lsnText = regexp.MustCompile(`^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$`)

// Set implements pflag.Value.
func (v *lsnValue) Set(text string) error {
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil || lsn == 0 || !lsnText.MatchString(text) {
		return errors.New("it must be an LSN as Postgres prints it, such as 16/B374D848")
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
	relayCfg.MemoryChanged = a.memoryLimiter(cfg)
	log := reload.logger(cfg, a.stderr)
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
		slog.String("brokers", strings.Join(cfg.BrokerAddresses(), ",")))
	for _, warning := range cfg.Warnings() {
		log.WarnContext(ctx, "configuration", slog.String("problem", warning))
	}

	defer reload.during(ctx, cfg, log)()
	start := time.Now()
	enough := checkBeside(ctx, relayCfg, cfg.Arguments(), log)
	err = traced(ctx, relayCfg.Tracer, relayCfg.DrainTimeout, log, func() error { return page.during(ctx, r) })
	enough()
	st := r.Stat()
	terms := catalog.Terms{Slot: relayCfg.Source.Slot, Publication: relayCfg.Source.Publication, Arguments: cfg.Arguments()}
	logStop(ctx, log, err, &st, time.Since(start))
	if err == nil {
		return nil
	}
	f := command.Failed(err)
	f.Where = []string{
		fmt.Sprintf("source: %s, publication %s, slot %s", source, relayCfg.Source.Publication, relayCfg.Source.Slot),
		"sink: " + relayCfg.Sink.String(),
	}
	f.Terms = terms
	f.Object, f.LSN = "slot "+relayCfg.Source.Slot, st.Confirmed
	if gap, ok := errors.AsType[*checkpoint.GapError](err); ok {
		f.LSN = gap.Recorded.EndLSN
	}
	switch f.Exit {
	case exit.SlotInUse: // a relay that may wait never ends with this code
		f.Next = "stop what holds the slot, which outbox-cdc check --all names, or set source.wait_for_slot: true to wait as a standby (docs/runbook.md#exit-12)"
	case exit.Sink:
		f.Object = relayCfg.Sink.String()
		if errors.Is(err, position.ErrFile) {
			f.Object = "position file " + relayCfg.Positions.File
		}
	}
	return f
}

// logStop logs that the relay has stopped, at level ERROR and with the reason if it failed: the block that
// command.Run writes to stderr is not a line that a log pipeline can read.
func logStop(ctx context.Context, log *slog.Logger, err error, st *relay.Stat, uptime time.Duration) {
	code := command.ExitCode(err)
	attrs := []slog.Attr{
		slog.Int("exit_code", code), slog.String("confirmed", st.Confirmed.String()),
		slog.Uint64("rows", st.Rows), slog.String("uptime", uptime.Round(time.Millisecond).String()),
	}
	level := slog.LevelInfo
	if code != exit.OK {
		level = slog.LevelError
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", replication.HideSettings(err)))
	}
	log.LogAttrs(ctx, level, "stopped", attrs...)
}

// heapBesideWindow is the memory that the relay needs in addition to the sink's window and destinations: batches of the reader, the
// requests being encoded, what the Go runtime has for itself, and room for the garbage collector. With 2 MiB less there is no such
// room: the collector then runs without pause while a backlog is sent, for half as much CPU time again.
const heapBesideWindow = 16 << 20

// heapOfRequests is the memory that a broker needs in addition if its client has a message and buffers of its own for each
// request in flight.
const heapOfRequests = 16 << 20

// memoryLimiter returns a function that sets the memory limit of the garbage collector for the memory of the sink, or nil if
// GOMEMLIMIT sets it. Without a limit the heap may grow to twice the memory in use, most of which is a full window. The
// limit is soft: a very large row may exceed it.
func (a *app) memoryLimiter(cfg *config.Config) func(sinkMemory int) {
	if command.Getenv(a.environ, "GOMEMLIMIT") != "" {
		return nil
	}
	beside := int64(heapBesideWindow)
	if !cfg.BatchesRequests() {
		beside += heapOfRequests
	}
	return func(sinkMemory int) { debug.SetMemoryLimit(beside + int64(sinkMemory)) }
}
