package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// DefaultTimeout is what Config.Timeout is where it is zero.
const DefaultTimeout = 30 * time.Second

// questions is how many questions that are not answered fit into the timeout.
const questions = 6

// Config says what to look at.
type Config struct {
	Relay relay.Config
	File  string // of its configuration, for commands; empty: none

	// Probe has Run create a topic, named after the position topic, and write to it to test whether
	// the broker rejects older writers. Run deletes the topic even if ctx or the timeout has ended,
	// for which it may take a sixth of the timeout longer.
	Probe bool

	// Timeout bounds all of it. One question may take a sixth of it. Zero means DefaultTimeout.
	Timeout time.Duration
}

// Run looks at both sides and returns every condition, in the order of [definitions]. It blocks
// until that is done, or ctx or the timeout ends; what was not answered by then is a condition
// that fails and names the question.
func Run(ctx context.Context, cfg Config) []Condition {
	return run(ctx, cfg, false)
}

// AtStart looks at what is cheap to look at and what a relay does not find out by itself, and
// returns the conditions that are not met. A side that cannot be reached is left out: the relay
// tells that itself.
func AtStart(ctx context.Context, cfg Config) []Condition {
	known := make(map[[2]string]bool)
	for _, d := range definitions() {
		known[[2]string{d.group, d.name}] = d.atStart
	}
	return slices.DeleteFunc(run(ctx, cfg, true), func(c Condition) bool {
		return c.State == Met || !known[[2]string{c.Group, c.Name}]
	})
}

func run(ctx context.Context, cfg Config, short bool) []Condition {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	l := look{Config: cfg, each: cfg.Timeout / questions, short: short, sampled: make(chan struct{})}
	source := &sourceLook{look: &l, report: report{group: Source}}
	var sink []Condition
	var both sync.WaitGroup
	both.Go(func() { l.takeSample(ctx) })
	both.Go(func() { source.run(ctx) })
	both.Go(func() { sink = l.lookAtKafka(ctx) })
	both.Wait()
	if source.catalog == nil { // then there is another reason that rows could not be read
		l.rows.conditions = nil
	}
	return sorted(slices.Concat(source.conditions, l.rows.conditions, sink))
}

// A look is one run.
type look struct {
	Config
	each  time.Duration // for one question
	short bool          // only what is cheap

	sampled chan struct{} // closed when sample and rows are complete
	sample  sample
	rows    report
}

// ask bounds one question. What is not answered is a failed condition of r; a short look leaves
// that out.
func (l *look) ask(ctx context.Context, r *report, name, object string, question func(ctx context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	var err error
	if ctx.Err() == nil {
		err = question(limited)
	}
	switch {
	case l.short:
		return err == nil && ctx.Err() == nil
	case ctx.Err() != nil:
		r.fail(name, object, fmt.Sprintf("not known: the %s for everything were over", l.Timeout), "look again with a longer --timeout, when what hangs above answers")
	case errors.Is(limited.Err(), context.DeadlineExceeded) && err != nil:
		r.fail(name, object, fmt.Sprintf("no answer in %s: %s", l.each, oneLine(err)), "find out what holds it up; --timeout allows it more")
	case err != nil:
		found, fix := remedy(err)
		r.fail(name, object, found, fix)
	default:
		return true
	}
	return false
}

// remedy splits what replication and sink say into what is wrong and what mends it.
func remedy(err error) (found, fix string) {
	found, fix, _ = strings.Cut(oneLine(err), "; ")
	switch {
	case fix != "":
	case errors.Is(err, replication.ErrUnreachable):
		fix = "start the server, or correct source.dsn and what lies between (DNS, firewall)"
	case errors.Is(err, replication.ErrAccess):
		fix = "correct source.dsn (user, password, sslmode), or what the server expects"
	}
	return found, fix
}

// oneLine returns the text of an error on one line. A server is tried with TLS and without, and both attempts may
// say the same.
func oneLine(err error) string {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line != "" && (len(lines) == 0 || !strings.HasSuffix(lines[len(lines)-1], line)) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// command is one of ours, for this configuration.
func (l *look) command(verb string) string {
	if l.File == "" {
		return "outbox-cdc " + verb
	}
	return "outbox-cdc " + verb + " -c " + l.File
}
