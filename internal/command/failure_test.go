package command

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// unreachable is a broker's error that contains advice.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }
func (unreachable) Advice() string  { return "Check the brokers." }

// The block says what failed, where, and what to do. Its last line has the exit code, the object, the position and
// the next step.
func TestFailureBlock(t *testing.T) {
	f := Failed(fmt.Errorf("contact Kafka: %w:\n  127.0.0.1:1: refused\n  127.0.0.1:1: refused", unreachable{sink.ErrUnreachable}))
	f.Where = []string{"source: db:5432/app, publication p, slot s", "sink: Kafka at 127.0.0.1:1"}
	f.Object, f.LSN = "slot s", 0x1A2B3C8
	var b strings.Builder
	f.write(&b, "outbox-cdc")
	want := `outbox-cdc: contact Kafka: the broker cannot be reached:
  127.0.0.1:1: refused
  source: db:5432/app, publication p, slot s
  sink: Kafka at 127.0.0.1:1

Check the brokers.

exit 20 (sink access): slot s at 0/1A2B3C8; next: start the broker, or fix its address or TLS settings as the error says, then run the command again (docs/access.md#no-broker-can-be-reached)
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Every exit code has a meaning and a next step. If it needs an operator, it also has a section in the runbook.
func TestEveryExitCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, code := range []int{
		exit.OK, exit.Unexpected, exit.Usage, exit.Source, exit.SlotLost, exit.SlotInUse,
		exit.NoDelivery, exit.BadRecord, exit.Continuity, exit.Sink, exit.Fenced,
	} {
		var b strings.Builder
		(&ExitError{Err: errors.New("it"), Exit: code, Object: "slot s"}).write(&b, "outbox-cdc")
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, fmt.Sprintf("exit %d (%s): slot s; next: ", code, fault.Meaning(code))) {
			t.Errorf("the last line of exit code %d is %q", code, last)
		}
		if other, ok := seen[fault.Meaning(code)]; ok {
			t.Errorf("exit codes %d and %d mean the same", code, other)
		}
		seen[fault.Meaning(code)] = code
		if code >= exit.Source && !strings.HasSuffix(last, fmt.Sprintf("(docs/runbook.md#exit-%d)", code)) {
			t.Errorf("the last line of exit code %d does not name its section: %q", code, last)
		}
		if !strings.Contains(string(page), fmt.Sprintf("\n## Exit %d\n", code)) {
			t.Errorf("exit code %d has no section", code)
		}
	}
}

// If the lock is held, every command ends in the same way, and refers to the same section of the documentation.
func TestHeldLock(t *testing.T) {
	f := Failed(fmt.Errorf("table outbox: %w", &advisory.HeldError{What: "migrate", Holders: "process 17", Err: replication.ErrBusy}))
	var b strings.Builder
	f.write(&b, "outbox-cdc")
	for _, want := range []string{"held by process 17\n", "pg_terminate_backend", "\nexit 1 (locked by another session); next: ", "(docs/runbook.md#another-session-holds-the-lock)\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
}

// Some causes have the same next step in every command.
func TestNextOfAFailure(t *testing.T) {
	hides := &pgconn.PgError{Code: "42501", Message: `query would be affected by row-level security policy for table "outbox"`, Routine: "check_enable_rls"}
	for _, tt := range []struct {
		err  error
		exit int
		next string
	}{
		{fmt.Errorf("table outbox: %w", &catalog.HiddenError{Table: "public.outbox", Role: "cdc"}), exit.Source, "docs/security.md#row-level-security"},
		{fmt.Errorf("delete rows of public.outbox: %w", hides), exit.Source, "docs/security.md#row-level-security"},
		{fmt.Errorf("delete rows: %w", &pgconn.PgError{Code: "42501", Message: "permission denied for table outbox"}), exit.Source, "grant the role what the error names"},
		{&catalog.WALLevelError{Level: "replica"}, exit.Source, "set wal_level and restart Postgres, then run the command again"},
		{&replication.RowError{CommitLSN: 7, Err: replication.ErrRow}, exit.BadRecord, "skip its transaction"},
		{replication.ErrUnreachable, exit.Source, "start Postgres, or fix host and port"},
		{fmt.Errorf("%w: slot s does not exist", replication.ErrSlotMissing), exit.SlotLost, `outbox-cdc recover --dsn "$OPERATOR_DSN"; if the relay has never run, outbox-cdc setup --dsn "$OWNER_DSN"`},
		{fmt.Errorf("connect: %w", &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"}), exit.Source, "docs/clouds.md#poolers"},
		{fmt.Errorf("delete rows: %w", &pgconn.PgError{Code: "42P05", Message: "prepared statement exists"}), exit.Source, "docs/clouds.md#poolers"},
		{fmt.Errorf("export a snapshot: %w", &pgconn.PgError{Code: "53100", Message: "could not write to file"}), exit.Source, "free space on the disk of Postgres"},
	} {
		f := Failed(tt.err)
		if !strings.Contains(f.Next, tt.next) || f.Exit != tt.exit {
			t.Errorf("%v: exit code %d, next: %s", tt.err, f.Exit, f.Next)
		}
	}
}

// A failure has the exit code of its cause.
func TestExitCodeOfAFailure(t *testing.T) {
	for want, err := range map[int]error{
		exit.SlotLost:   replication.ErrSlotLost,
		exit.NoDelivery: fmt.Errorf("set up: %w", replication.ErrPublication),
		exit.Source:     fmt.Errorf("create the table: %w", &pgconn.PgError{Code: "42501"}),
		exit.Unexpected: errors.New("never heard of"),
	} {
		if got := Failed(err).Exit; got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}
