package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// run prints progress to stderr and the report to stdout. After an error or a signal, the
// report has the measurements so far.
func (s *settings) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	var rules gate
	if s.gate != "" {
		if rules, err = readGate(s.gate); err != nil {
			return &command.ExitError{Err: err, Exit: exit.Usage}
		}
	}
	own, err := startServers(ctx, s)
	if err != nil {
		return command.Failed(err)
	}
	defer func() {
		if stopping := own.stop(ctx); err == nil && stopping != nil {
			err = command.Failed(stopping)
		}
	}()
	on, log, err := s.load(ctx, own, stderr)
	if err != nil {
		return s.misconfigured(err)
	}
	r := &report{Suite: s.suite, Runs: s.runs, Started: time.Now()}
	r.Sink = on.sink
	h := &harness{
		on: on, runs: s.runs, codec: s.codec, keep: s.keep, report: r, outageRows: s.outageRows, own: own,
		log: log, lines: stderr, progress: command.NewProgress(stderr, s.environ, log),
	}
	measuring := s.measure(ctx, h, own)
	h.progress.End()
	if measuring != nil && ctx.Err() != nil {
		measuring = fmt.Errorf("interrupted before everything was measured: %w", measuring)
	}
	if len(r.Checks)+len(r.Drains) == 0 && measuring != nil { // nothing to report
		f := on.failure(ctx, measuring)
		if errors.Is(measuring, errNoRelay) {
			f.Exit, f.Next = exit.Usage, "--relay says where it is"
		}
		return f
	}
	r.Took = time.Since(r.Started).Round(time.Second).String()
	if err := errors.Join(measuring, r.publish(s, stdout), r.err(), r.judge(s, rules, stdout)); err != nil {
		f := on.failure(ctx, err)
		f.Next = "see the report"
		return f
	}
	return nil
}

// load reads the configuration. Servers that we have started replace those of the user.
func (s *settings) load(ctx context.Context, own *servers, stderr io.Writer) (*site, *slog.Logger, error) {
	cfg, err := s.config.Load(s.environ, own.settings()...)
	if err != nil {
		return nil, nil, err
	}
	environ := s.environ
	if own.broker != nil {
		environ = slices.Concat(environ, own.broker.environ)
	}
	on, err := newSite(ctx, cfg, environ)
	if err != nil {
		return nil, nil, err
	}
	through, err := s.config.Load(s.environ, own.throughLink()...)
	if err != nil {
		return nil, nil, err
	}
	on.throughLink = through.SinkSettings()
	if cfg.SinkKind() == kafkaKind {
		s.codec = cfg.Sink.Kafka.Compression
	}
	return on, command.NewLogger(cfg, stderr), nil
}

// misconfigured returns the failure for an invalid configuration of the servers.
func (s *settings) misconfigured(err error) *command.ExitError {
	f := command.Failed(err)
	if _, ok := errors.AsType[*config.Error](err); ok && !s.ownServers {
		f.Advice = "To measure on servers that are started for it: outbox-cdc-bench --own-servers"
	}
	return f
}

// measure finds the contenders and lets h measure them.
func (s *settings) measure(ctx context.Context, h *harness, own *servers) (err error) {
	p, err := s.plan()
	if err != nil {
		return err
	}
	scratch, err := serverproc.MakeDir("", "outbox-cdc-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	f, err := newField(ctx, s, h.on, scratch.Path())
	if err != nil {
		return err
	}
	h.field, h.report.NotCompared = f.entrants, f.noFloor
	if err := h.on.contact(ctx, h.log); err != nil {
		return err
	}
	if h.report.Machine, err = describe(ctx, s, f.relays, h.on, own); err != nil {
		return err
	}
	return h.measure(ctx, p)
}

// publish writes the report to stdout and to the configured files.
func (r *report) publish(s *settings, stdout io.Writer) error {
	text := r.markdown()
	var errs []error
	if s.markdown != "" {
		errs = append(errs, os.WriteFile(s.markdown, []byte(text), 0o644)) //nolint:gosec // to be read by all
	}
	switch s.json {
	case "-":
		return errors.Join(append(errs, r.writeJSON(stdout))...)
	case "":
	default:
		errs = append(errs, r.saveJSON(s.json))
	}
	_, err := io.WriteString(stdout, text)
	return errors.Join(append(errs, err)...)
}

// judge applies the gate, if there is one.
func (r *report) judge(s *settings, rules gate, stdout io.Writer) error {
	if s.gate == "" {
		return nil
	}
	comparisons, err := rules.check(r)
	fmt.Fprintln(stdout, "\nGate:")
	for _, p := range comparisons {
		fmt.Fprintln(stdout, p)
	}
	return err
}
