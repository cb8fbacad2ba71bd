package check

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 30 * time.Second

// questions is the number of requests without a response that fit into the timeout.
const questions = 6

// Config is what a check tests.
type Config struct {
	Relay     relay.Config
	Arguments string // of the commands in fixes, for the configuration: -c relay.yaml; may be empty

	Warnings []string // about valid settings, one sentence each

	// Probe has Run write to a place of its own at the broker, to test whether that rejects older writers. Run removes it even
	// if ctx or the timeout has ended, for which it may take a sixth of the timeout longer.
	Probe bool

	// Timeout is the time limit of the whole check. One request may take a sixth of it. Zero means DefaultTimeout.
	Timeout time.Duration
}

// Run checks Postgres and the broker and returns every condition, in the order of [definitions]. It returns when the check
// is complete, ctx ends or the timeout expires. A condition for which there was no response by then fails.
func Run(ctx context.Context, cfg Config) []Condition {
	return append(settings(cfg.Warnings), run(ctx, cfg, false)...)
}

// settings returns the conditions about the configuration alone.
func settings(warnings []string) []Condition {
	r := report{group: Configuration}
	for _, warning := range warnings {
		found, fix, _ := strings.Cut(warning, "; ")
		r.warn("configuration", "", found, fix)
	}
	if warnings == nil {
		r.ok("configuration", "", "nothing to note")
	}
	return r.conditions
}

// AtStart checks what is cheap to check and what a relay does not notice itself. It returns the conditions that are not
// met. It leaves out a server that it cannot reach, because the relay reports that.
func AtStart(ctx context.Context, cfg Config) []Condition {
	return slices.DeleteFunc(run(ctx, cfg, true), func(c Condition) bool { return c.State == Met })
}

func run(ctx context.Context, cfg Config, short bool) []Condition {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	ck := checker{Config: cfg, limits: sink.Limits{Request: cfg.Timeout / questions, Whole: cfg.Timeout}, short: short, sampled: make(chan struct{})}
	source := &sourceChecker{checker: &ck, report: report{group: Source}}
	var ofSink []Condition
	var both sync.WaitGroup
	both.Go(func() { ck.takeSample(ctx) })
	both.Go(func() { source.run(ctx) })
	both.Go(func() { ofSink = ck.checkSink(ctx) })
	both.Wait()
	if source.catalog == nil { // rows could not be read either, and another condition has the reason
		ck.rows.conditions = nil
	}
	all := append(ck.defined(slices.Concat(source.conditions, ck.rows.conditions)), ofSink...)
	terms := catalog.Terms{Slot: cfg.Relay.Source.Slot, Publication: cfg.Relay.Source.Publication, Arguments: cfg.Arguments}
	for i := range all {
		all[i].Found, all[i].Fix = terms.Fill(all[i].Found), terms.Fill(all[i].Fix)
	}
	return all
}

// A checker runs one check.
type checker struct {
	Config
	limits sink.Limits
	short  bool // for AtStart: only cheap requests

	sampled chan struct{} // closed when sample and rows are complete
	sample  sample

	sampleFix string // how to have the rows read if none was; complete with sample
	rows      report
}

// ask calls question with the time limit of one request, and reports whether it succeeded. If not, it adds a failed
// condition to r, except in a short check.
func (ck *checker) ask(ctx context.Context, r *report, name, object string, question func(ctx context.Context) error) bool {
	err := ck.limits.Ask(ctx, question)
	if err != nil && !ck.short {
		found, fix := remedy(err)
		r.fail(name, object, found, fix)
	}
	return err == nil
}

// remedy splits the text of an error of replication or sink into what is wrong and how to fix it.
func remedy(err error) (found, fix string) {
	if late, ok := errors.AsType[*sink.LimitError](err); ok {
		return oneLine(late), late.Advice()
	}
	if _, locked := errors.AsType[*catalog.LockError](err); locked {
		return oneLine(err), fault.Next(err)
	}
	found, fix, _ = strings.Cut(oneLine(err), "; ")
	switch {
	case fix != "":
	case errors.Is(err, replication.ErrUnreachable):
		fix = "start the server, or fix source.dsn or the network (DNS, firewall)"
	case errors.Is(err, replication.ErrAccess):
		fix = "fix source.dsn (user, password, sslmode), or the server's pg_hba.conf and roles"
	case errors.Is(err, replication.ErrBusy):
		fix = fault.Next(err)
	}
	return found, fix
}

// oneLine returns the text of an error on one line.
func oneLine(err error) string { return flatten(err.Error()) }

// flatten returns a text on one line, without repeated lines: a server is tried with TLS and without, and both attempts may fail
// for the same reason.
func flatten(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && (len(lines) == 0 || !strings.HasSuffix(lines[len(lines)-1], line)) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
