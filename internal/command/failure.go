package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An ExitError is why the process ends, with everything a person needs to go on.
type ExitError struct {
	Err    error
	Exit   int
	Where  []string      // lines: which servers and objects were at work
	Advice string        // lines: what to do; empty: Err says it
	Object string        // such as "slot outbox_cdc"
	LSN    pglogrepl.LSN // confirmed so far; 0: none
	Next   string        // the next step in a few words
	What   string        // what Exit means here; empty: what it means everywhere
	Silent bool          // the output has said it all: nothing more is written
}

// Error returns what happened.
func (f *ExitError) Error() string { return f.Err.Error() }

// Unwrap returns the error behind it.
func (f *ExitError) Unwrap() error { return f.Err }

// Failed makes an ExitError of what the packages below return.
func Failed(err error) *ExitError {
	err = replication.HideSettings(err)
	f := &ExitError{Err: err, Exit: ExitCode(err), Advice: relay.Advice(err)}
	if _, ok := errors.AsType[*config.Error](err); ok {
		f.Next = "correct the above; outbox-cdc config --schema lists every key"
	}
	if _, ok := errors.AsType[*advisory.HeldError](err); ok {
		f.What, f.Next = "locked by another session", "end that session, or wait for it, then try again (docs/runbook.md#another-session-holds-the-lock)"
	}
	return f
}

// Usage is the ExitError to make sense of cmd's command line.
func Usage(cmd *cobra.Command, err error) *ExitError {
	if what, meant, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
		err = errors.New(what + "; did you mean " + strings.Join(strings.Fields(meant), " or ") + "?")
	}
	return &ExitError{Err: err, Exit: relay.ExitUsage, Next: "see " + cmd.CommandPath() + " --help"}
}

// ExitCode returns the exit code that err leads to.
func ExitCode(err error) int {
	if _, ok := errors.AsType[*config.Error](err); ok {
		return relay.ExitUsage
	}
	for _, refusal := range []error{migrations.ErrTableExists, migrations.ErrForm, migrations.ErrPublished} {
		if errors.Is(err, refusal) {
			return relay.ExitUsage
		}
	}
	code := relay.ExitCode(err)
	if code == relay.ExitUnexpected && refusedBySource(err) {
		return relay.ExitSource
	}
	return code
}

// refusedBySource reports whether Postgres does not let us in, or not do what was asked.
func refusedBySource(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	const insufficientPrivilege = "42501"
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refusal.Code == insufficientPrivilege
}

// write writes the block of a program.
func (f *ExitError) write(w io.Writer, program string) {
	if f.Silent {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", program, paragraph(f.Err.Error()))
	for _, line := range f.Where {
		b.WriteString("  " + line + "\n")
	}
	if f.Advice != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimRight(f.Advice, "\n"))
	}
	meaning, next := explain(f.Exit)
	fmt.Fprintf(&b, "\nexit %d (%s)", f.Exit, cmp.Or(f.What, meaning))
	if f.Object != "" {
		b.WriteString(": " + f.Object)
	}
	if f.LSN != 0 {
		b.WriteString(" at " + f.LSN.String())
	}
	fmt.Fprintf(&b, "; next: %s\n", cmp.Or(f.Next, next))
	_, _ = io.WriteString(w, b.String())
}

// paragraph indents what follows the first line of an error. A line that only repeats the
// one before goes: a host is tried with TLS and without, and both attempts say the same.
func paragraph(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case len(out) == 0:
			out = append(out, line)
		case !strings.HasSuffix(out[len(out)-1], line):
			out = append(out, "  "+line)
		}
	}
	return strings.Join(out, "\n")
}

// Meaning returns what an exit code means, in a few words.
func Meaning(exit int) string {
	meaning, _ := explain(exit)
	return meaning
}

// explain returns what an exit code means, and what to do where the failure has nothing more
// exact. The codes that need a person say so: a supervisor must not restart on them.
func explain(exit int) (meaning, next string) {
	switch exit {
	case relay.ExitOK:
		return "stopped", "start again to go on"
	case relay.ExitUsage:
		return "configuration or usage", "correct it and start again"
	case relay.ExitSource:
		meaning, next = "source access", "make the source accept us and start again"
	case relay.ExitSlotLost:
		meaning, next = "slot missing or lost", "a person decides about what the slot no longer holds, then outbox-cdc setup"
	case relay.ExitSlotInUse:
		meaning, next = "slot in use", "stop the other process, or set source.wait_for_slot to stand by"
	case relay.ExitNoDelivery:
		meaning, next = "publication or table does not deliver", "a person corrects publication or table, then start again"
	case relay.ExitBadRecord:
		meaning, next = "record that cannot be delivered", "a person corrects or gives up the record, then start again"
	case relay.ExitContinuity:
		meaning, next = "continuity broken", "a person finds out which server this is before anything is started"
	case relay.ExitSink:
		meaning, next = "sink access", "make the sink accept us and start again"
	case relay.ExitFenced:
		meaning, next = "fenced", "a person stops the other instance, then start again"
	default:
		return "unexpected", "start again; if it comes back, report it with the lines above"
	}
	return meaning, fmt.Sprintf("%s (docs/runbook.md#exit-%d)", next, exit)
}

// Address names the database that pg leads to, all its hosts included.
func Address(pg *pgconn.Config) string {
	var hosts []string
	for _, a := range append([]*pgconn.FallbackConfig{{Host: pg.Host, Port: pg.Port}}, pg.Fallbacks...) {
		host := net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
		if !slices.Contains(hosts, host) { // a host is there twice, with TLS and without
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + pg.Database
}
