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
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An ExitError is the reason a command fails, with what to do about it.
type ExitError struct {
	Err    error
	Exit   int
	Where  []string      // one line each: the servers and objects involved
	Advice string        // one or more lines: what to do; empty: Err says it
	Object string        // such as "slot outbox_cdc"
	LSN    pglogrepl.LSN // confirmed position; 0: none
	Next   string        // the next step in a few words; empty: that of the exit code
	What   string        // the meaning of Exit for this command; empty: the general meaning
	Silent bool          // the command's output contains the error, so no block is written
	Terms  catalog.Terms // of the instructions in Err, Advice and Next; [Run] sets the Arguments
}

// Error returns the text of Err.
func (f *ExitError) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *ExitError) Unwrap() error { return f.Err }

// Failed returns the ExitError for an error of another package.
func Failed(err error) *ExitError {
	err = replication.ExplainConnect(err)
	f := &ExitError{Err: err, Exit: ExitCode(err), Advice: fault.Advice(err), Next: fault.Next(err)}
	if _, ok := errors.AsType[*config.Error](err); ok {
		f.Next = "fix the above; outbox-cdc config --schema lists every key"
	}
	if _, ok := errors.AsType[*advisory.HeldError](err); ok {
		f.What, f.Next = "locked by another session", "end that session or wait for it, then run the command again (docs/runbook.md#another-session-holds-the-lock)"
	}
	if errors.Is(err, migrations.ErrNoSchema) {
		f.Next = `create the schema, or name one: --table app.outbox, --table '"Sales".outbox' if it has capitals, or --inbox-schema`
	}
	if _, ok := errors.AsType[*catalog.HiddenError](err); ok || replication.HidesRows(err) {
		f.Next = "let the role see every row, or give the --dsn of the table's owner (docs/security.md#row-level-security)"
	}
	return f
}

// Interrupt makes f say that a signal has stopped the command before it had done everything, and what is next.
func (f *ExitError) Interrupt(before, next string) {
	f.Err, f.Exit, f.What, f.Advice, f.Next = errors.New("stopped before "+before), exit.Unexpected, "interrupted", "", next
}

// Usage returns the ExitError for a wrong command line of cmd.
func Usage(cmd *cobra.Command, err error) *ExitError {
	if what, meant, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok {
		err = errors.New(what + "; did you mean " + strings.Join(strings.Fields(meant), " or ") + "?")
	}
	return &ExitError{Err: err, Exit: exit.Usage, Next: "see " + cmd.CommandPath() + " --help"}
}

// ExitCode returns the exit code that err leads to.
func ExitCode(err error) int {
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exit.Usage
	}
	for _, refusal := range []error{migrations.ErrTableExists, migrations.ErrForm, migrations.ErrDropped, migrations.ErrPublished, migrations.ErrNoSchema} {
		if errors.Is(err, refusal) {
			return exit.Usage
		}
	}
	code := fault.ExitCode(err)
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok && code == exit.Unexpected {
		return exit.Source
	}
	return code
}

// write writes the error block of a program.
func (f *ExitError) write(w io.Writer, program string) {
	if f.Silent {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", program, f.Terms.Fill(paragraph(f.Err.Error())))
	for _, line := range f.Where {
		b.WriteString("  " + line + "\n")
	}
	if f.Advice != "" {
		fmt.Fprintf(&b, "\n%s\n", f.Terms.Fill(strings.TrimRight(f.Advice, "\n")))
	}
	fmt.Fprintf(&b, "\nexit %d (%s)", f.Exit, cmp.Or(f.What, fault.Meaning(f.Exit)))
	if f.Object != "" {
		b.WriteString(": " + f.Object)
	}
	if f.LSN != 0 {
		b.WriteString(" at " + f.LSN.String())
	}
	fmt.Fprintf(&b, "; next: %s\n", f.Terms.Fill(cmp.Or(f.Next, fault.NextAfter(f.Exit))))
	_, _ = io.WriteString(w, b.String())
}

// paragraph indents the lines of an error after the first. It drops a line that repeats the one before: libpq's rules
// try a host with TLS and without, and both attempts may fail for the same reason.
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

// Address returns the hosts and the database of pg.
func Address(pg *pgconn.Config) string {
	var hosts []string
	for _, a := range append([]*pgconn.FallbackConfig{{Host: pg.Host, Port: pg.Port}}, pg.Fallbacks...) {
		host := net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
		if !slices.Contains(hosts, host) { // pgconn lists a host twice, with TLS and without
			hosts = append(hosts, host)
		}
	}
	return strings.Join(hosts, ",") + "/" + pg.Database
}
