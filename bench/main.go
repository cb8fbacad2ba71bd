package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

func main() {
	pgserver.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // main
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2) //nolint:forbidigo // main
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

// run prints the report to stdout, also of what was measured before an error
// or a signal, and says on stderr how far it is.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	p, err := s.plan()
	if err != nil {
		return err
	}
	var rules gate
	if s.gate != "" {
		if rules, err = readGate(s.gate); err != nil {
			return err
		}
	}
	r := &report{Suite: s.suite, Runs: s.runs, Started: time.Now()}
	measuring := measure(ctx, s, p, r, stderr)
	r.Took = time.Since(r.Started).Round(time.Second).String()
	if len(r.Checks)+len(r.Drains) == 0 && measuring != nil {
		return measuring // nothing to report
	}
	return errors.Join(measuring, r.publish(s, stdout), r.err(), r.judge(s, rules, stdout))
}

// measure fills r.
func measure(ctx context.Context, s *settings, p plan, r *report, log io.Writer) (err error) {
	scratch, err := serverproc.MakeDir("", "outbox-cdc-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	entrants, err := field(ctx, s, scratch.Path())
	if err != nil {
		return err
	}
	on, err := startServers(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, on.stop(ctx)) }()
	if r.Machine, err = describe(ctx, s, on); err != nil {
		return err
	}
	h := &harness{on: on.Servers, field: entrants, runs: s.runs, log: log, report: r}
	return h.measure(ctx, p)
}

// publish writes the report to where it is wanted.
func (r *report) publish(s *settings, stdout io.Writer) error {
	text := r.markdown()
	_, err := io.WriteString(stdout, text)
	if s.markdown != "" {
		err = errors.Join(err, os.WriteFile(s.markdown, []byte(text), 0o644)) //nolint:gosec // to be read by all
	}
	if s.json != "" {
		err = errors.Join(err, r.writeJSON(s.json))
	}
	return err
}

// judge applies the gate, if there is one.
func (r *report) judge(s *settings, rules gate, stdout io.Writer) error {
	if s.gate == "" {
		return nil
	}
	passages, err := rules.pass(r)
	fmt.Fprintln(stdout, "\nGate:")
	for _, p := range passages {
		fmt.Fprintln(stdout, p)
	}
	return err
}
