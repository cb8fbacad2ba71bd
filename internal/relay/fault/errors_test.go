package fault

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sentinels are the errors that the stages distinguish, by file and name.
var sentinels = map[string]map[string]error{
	"../../../replication/errors.go": {
		"ErrUnreachable": replication.ErrUnreachable, "ErrAccess": replication.ErrAccess, "ErrSlotMissing": replication.ErrSlotMissing,
		"ErrSlotInUse": replication.ErrSlotInUse, "ErrBusy": replication.ErrBusy,
		"ErrPublication": replication.ErrPublication,
		"ErrUnpublished": replication.ErrUnpublished, "ErrRow": replication.ErrRow, "ErrServerStopping": replication.ErrServerStopping,
		"ErrConfig": replication.ErrConfig, "ErrSlotLost": replication.ErrSlotLost, "ErrWALRemoved": replication.ErrWALRemoved,
	},
	"../../../sink/errors.go": {
		"ErrUnreachable": sink.ErrUnreachable, "ErrAccess": sink.ErrAccess, "ErrMissing": sink.ErrMissing,
		"ErrSuperseded": sink.ErrSuperseded, "ErrFatal": sink.ErrFatal,
	},
}

// advised is a broker's error that contains advice.
type advised struct{ error }

func (a advised) Unwrap() error { return a.error }
func (advised) Advice() string  { return "as the broker advises" }

// Every row of the fault table has a test case. The exit code, the patience and the advice of its error are those
// of the row.
func TestFaultsDecideExitCodePatienceAndAdvice(t *testing.T) {
	recorded := checkpoint.Position{EndLSN: 0x20}
	met := make(map[int]bool)
	for name, tc := range map[string]struct {
		err      error
		exit     int
		patience Patience
		says     string // part of the advice
	}{
		"drain timeout":         {ErrDrainTimeout, 0, Never, ""},
		"left behind":           {ErrPositionUnsaved, 0, Never, ""},
		"bad row":               {&pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}}, 14, Never, "pg_replication_slot_advance('<slot>', '0/AB'::pg_lsn + 1)"},
		"bad row of a refill":   {&pump.DeliveryError{CommitLSN: 0xAB, Copied: true, Err: &encode.RowError{}}, 14, Never, "Do not skip anything"},
		"refused record":        {&pump.DeliveryError{CommitLSN: 0xAB, Err: &sink.RecordError{Reason: errors.New("no")}}, 14, Never, "'0/AB'::pg_lsn + 1"},
		"row beyond the limit":  {&replication.RowError{CommitLSN: 0xAB, Err: replication.ErrRow}, 14, Never, "'0/AB'::pg_lsn + 1"},
		"row of no transaction": {replication.ErrRow, 14, Never, "fits into no record"},
		"not pgoutput":          {&decoder.Error{}, 1, Never, "report it"},
		"missing column":        {&pump.DeliveryError{Err: &encode.ColumnError{}}, 13, Never, "outbox.columns"},
		"column list":           {errors.Join(&encode.ColumnError{}, rows.ErrColumnList), 13, Never, ""},
		"older row":             {errors.Join(&encode.ColumnError{}, ErrOlderRow), 13, Never, "new in outbox.columns"},
		"update":                {&pump.ChangeError{Kind: "UPDATE", CommitLSN: 0xAB}, 13, Never, "'0/AB'::pg_lsn + 1"},
		"delete":                {&pump.ChangeError{Kind: "DELETE"}, 13, Never, "Start the relay again"},
		"truncate":              {&pump.ChangeError{Kind: "TRUNCATE"}, 13, Never, "ALTER PUBLICATION <publication> SET"},
		"publication":           {replication.ErrPublication, 13, Never, ""},
		"rows not sent":         {position.ErrLeftOut, 13, Never, ""},
		"missing table":         {catalog.ErrNoTable, 13, Never, ""},
		"no publication":        {replication.ErrUnpublished, 13, Never, "outbox-cdc setup --drop"},
		"no slot":               {replication.ErrSlotMissing, 11, Never, ""},
		"gap without a refill":  {&catalog.UnrefillableError{Err: &checkpoint.GapError{Reason: errors.New("advanced")}}, 15, Never, ""},
		"slot without a refill": {&catalog.UnrefillableError{Err: replication.ErrSlotMissing}, 11, Never, ""},
		"loss without a refill": {fmt.Errorf("%w; %w", replication.ErrSlotLost, catalog.ErrRefill), 11, Never, ""},
		"pruned, slot missing":  {fmt.Errorf("%w; %w", replication.ErrSlotMissing, catalog.ErrPruned), 11, Never, ""},
		"no witness, no slot":   {fmt.Errorf("%w; %w", replication.ErrSlotMissing, catalog.ErrNoWitness), 11, Never, ""},
		"no witness, gap":       {fmt.Errorf("%w; %w", &checkpoint.GapError{}, catalog.ErrNoWitness), 15, Never, ""},
		"gap, recover refuses":  {fmt.Errorf("%w; %w", &checkpoint.GapError{}, catalog.ErrRefill), 15, Never, ""},
		"partitions, lost slot": {fmt.Errorf("%w; %w", replication.ErrSlotLost, catalog.ErrParts), 11, Never, ""},
		"partitions, gap":       {fmt.Errorf("%w; %w", &checkpoint.GapError{}, catalog.ErrParts), 15, Never, ""},
		"pruned, gap":           {fmt.Errorf("%w; %w", &checkpoint.GapError{}, catalog.ErrPruned), 15, Never, ""},
		"lost slot":             {replication.ErrSlotLost, 11, Never, ""},
		"missing WAL":           {replication.ErrWALRemoved, 11, Briefly, ""},
		"no password":           {&replication.CredentialsError{Err: errors.New("no token")}, 10, Later, ""},
		"pooler":                {fmt.Errorf("%w: %w", replication.ErrConfig, &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"}), 10, Never, ""},
		"replication to pooler": {&pgconn.PgError{Code: "42601", Message: `syntax error at or near "IDENTIFY_SYSTEM"`}, 10, Never, ""},
		"statement of another":  {&pgconn.PgError{Code: "42P05", Message: "prepared statement exists"}, 10, Never, ""},
		"disk full":             {&pgconn.PgError{Code: "53100"}, 10, Outage, ""},
		"standby":               {fmt.Errorf("%w: %w", replication.ErrUnreachable, &pgconn.PgError{Code: "25006"}), 10, Outage, ""},
		"damaged WAL":           {&pgconn.PgError{Code: "XX000"}, 1, Briefly, ""},
		"ended connection":      {fmt.Errorf("%w: %w", replication.ErrUnreachable, &pgconn.PgError{Code: "57P01"}), 10, Outage, "has ended the connection"},
		"setting":               {replication.ErrConfig, 10, Never, ""},
		"wal_level":             {&catalog.WALLevelError{Level: "replica"}, 10, Never, ""},
		"privilege":             {&pgconn.PgError{Code: "42501"}, 10, Briefly, ""},
		"right":                 {&catalog.RightError{}, 10, Briefly, ""},
		"right to copy":         {&refill.CreationError{Err: &catalog.ReadError{}}, 10, Briefly, ""},
		"privilege to create":   {&refill.CreationError{Err: &pgconn.PgError{Code: "42501"}}, 10, Briefly, ""},
		"dead letter":           {fmt.Errorf("%w; %w", &sink.RecordError{}, pump.ErrDeadLetter), 14, Never, "Let the destination dead_letter_topic accept"},
		"no more parked keys":   {fmt.Errorf("%w; %w", &encode.RowError{}, pump.ErrParkedFull), 14, Never, ""},
		"another relay's slot":  {&checkpoint.GapError{Reason: checkpoint.ErrOtherSlot}, 15, Never, "set a name of its own"},
		"another system":        {&checkpoint.GapError{Reason: checkpoint.ErrOtherSystem}, 15, Never, "set a name of its own"},
		"the old primary":       {&checkpoint.GapError{Reason: checkpoint.ErrEarlierTimeline}, 15, Never, "lead to the new primary"},
		"an older copy":         {&checkpoint.GapError{Reason: checkpoint.ErrOtherWAL}, 15, Never, "correct source.dsn"},
		"gap":                   {&checkpoint.GapError{Recorded: recorded}, 15, Never, "--accept-gap"},
		"unreadable record":     {position.ErrRecord, 15, Never, "position_topic"},
		"other rows again":      {&checkpoint.RereadError{}, 15, Never, "--accept-gap"},
		"promoted":              {position.ErrPromoted, 10, Outage, ""},
		"older copy":            {&checkpoint.HistoryError{}, 15, Never, "starts at the slot's own position"},
		"older copy accepted":   {fmt.Errorf("%w: %s", ErrCopyAccepted, (&checkpoint.HistoryError{}).Error()), 10, Outage, ""},
		"another owner":         {fmt.Errorf("topic p: %w", sink.ErrSuperseded), 21, Outage, ""},
		"record of another":     {position.ErrReplaced, 12, Standby, ""},
		"slot changes hands":    {ErrSlotTaken, 12, Standby, ""},
		"other server":          {ErrOtherServer, 10, Outage, ""},
		"stood still":           {ErrSuspended, 10, Outage, ""},
		"lost connection":       {ErrLostSender, 10, Outage, ""},
		"other open rows":       {&checkpoint.PrefixError{}, 15, Outage, ""},
		"store is away":         {fmt.Errorf("%w: %w", position.ErrNoStore, sink.ErrUnreachable), 20, Outage, ""},
		"copy not finished":     {refill.ErrCopyUnfinished, 15, Never, "initial_copy"},
		"keys are parked":       {position.ErrKeysParked, 15, Never, "on_bad_record: park"},
		"parked keys are lost":  {position.ErrParkedLost, 15, Never, "--accept-gap"},
		"refill not finished":   {refill.ErrUnfinished, 15, Never, "outbox-cdc recover"},
		"no refill":             {fmt.Errorf("%w: no record", catalog.ErrRefill), 15, Never, ""},
		"nothing lost":          {refill.ErrNothingLost, 0, Never, ""},
		"position to skip to":   {fmt.Errorf("%w: it is after the end of the WAL", pump.ErrSkip), 2, Never, ""},
		"position file":         {fmt.Errorf("%w: denied", position.ErrFile), 20, Briefly, ""},
		"position file, full":   {fmt.Errorf("%w: no space left", position.ErrFileFailed), 20, Outage, ""},
		"broker refuses":        {sink.ErrAccess, 20, Briefly, ""},
		"topic missing":         {sink.ErrMissing, 20, Never, ""},
		"no broker":             {sink.ErrUnreachable, 20, Never, ""},
		"fatal answer":          {sink.ErrFatal, 20, Never, ""},
		"broker with advice":    {advised{sink.ErrAccess}, 20, Briefly, "as the broker advises"},
		"slot in use":           {replication.ErrSlotInUse, 12, Standby, ""},
		"source refuses":        {replication.ErrAccess, 10, Briefly, ""},
		"busy":                  {replication.ErrBusy, 10, Outage, ""},
		"older transactions":    {catalog.ErrOlderTransactions, 10, Outage, ""},
		"table is locked":       {fmt.Errorf("%w: %w", replication.ErrBusy, &catalog.LockError{}), 10, Outage, "--set startup_timeout"},
		"lock is held":          {&advisory.HeldError{Err: replication.ErrBusy}, 1, Standby, "pg_terminate_backend"},
		"stopping":              {replication.ErrServerStopping, 10, Outage, ""},
		"no source":             {replication.ErrUnreachable, 10, Outage, "source.dsn"},
		"anything else":         {errors.New("never heard of"), 1, Briefly, ""},

		// If an error wraps two, the one that the operator must fix decides.
		"lost, and in use":                 {fmt.Errorf("%w: %w", replication.ErrSlotInUse, replication.ErrSlotLost), 11, Never, ""},
		"bad row while the source is lost": {errors.Join(replication.ErrUnreachable, &pump.DeliveryError{Err: &encode.RowError{}}), 14, Never, "dead-letter"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("while at it: %w", tc.err)
			f := faultOf(err)
			if got := ExitCode(err); got != tc.exit || f.exit != tc.exit {
				t.Errorf("exit code %d, want %d", got, tc.exit)
			}
			if f.patience != tc.patience {
				t.Errorf("patience %d, want %d", f.patience, tc.patience)
			}
			if advice := Advice(err); !strings.Contains(advice, tc.says) || (advice == "") != (tc.says == "") || strings.Contains(advice, "'::pg_lsn") != (transactionOf(err) != 0) {
				t.Errorf("advice %q, want %q", advice, tc.says)
			}
		})
		for i, f := range faults {
			if f.is(tc.err) {
				met[i] = true
				break
			}
		}
	}
	for i, f := range faults {
		if !met[i] {
			t.Errorf("no test case for row %d of the table (exit code %d)", i, f.exit)
		}
	}
	steps := make(map[string]int)
	for _, f := range faults {
		if exit, ok := steps[f.next]; f.next != "" && ok && exit != f.exit {
			t.Errorf("exit codes %d and %d have the same next step: %s", exit, f.exit, f.next)
		}
		steps[f.next] = f.exit
	}
	if ExitCode(nil) != 0 || Advice(nil) != "" {
		t.Error("no error is one")
	}
}

// Every sentinel error has a row in the fault table, so that no named error counts as unexpected.
func TestFaultsHaveARowForEverySentinel(t *testing.T) {
	for path, known := range sentinels {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		declared := 0
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Err") {
				return true
			}
			declared++
			name := spec.Names[0].Name
			sentinel := known[name]
			if sentinel == nil {
				t.Errorf("%s: %s is not known here", path, name)
			} else if !slices.ContainsFunc(faults, func(f fault) bool { return f.is(sentinel) }) {
				t.Errorf("%s: %s has no row", path, name)
			}
			return true
		})
		if declared != len(known) {
			t.Errorf("%s declares %d, %d are known", path, declared, len(known))
		}
	}
}

func TestFailuresMergeAndKeepTheLatest(t *testing.T) {
	var f Failures
	now := time.Unix(1_700_000_000, 0)
	f.Add(errors.New("read from port 5432"), now)
	f.Add(errors.New("read from port 5433"), now.Add(time.Minute))
	if len(f) != 1 || f[0].Times != 2 || f[0].Text != "read from port 5433" || f[0].Last.Sub(f[0].First) != time.Minute || f[0].ExitCode != exit.Unexpected {
		t.Errorf("a repeated failure: %+v", f)
	}
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		f.Add(errors.New(text), now)
	}
	if len(f) != maxFailures || f[0].Text != "b" || f[maxFailures-1].Text != "i" {
		t.Errorf("kept: %+v", f)
	}
	var fenced Failures
	for _, answer := range []string{"PRODUCER_FENCED", "topic t, partition 2: INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"} {
		fenced.Add(fmt.Errorf("%w: %s", sink.ErrSuperseded, answer), now)
	}
	if len(fenced) != 1 || fenced[0].Times != 3 {
		t.Errorf("fenced three times: %+v", fenced)
	}
	var gap Failures
	gap.Add(position.ErrRecord, now)
	if gap[0].ExitCode != exit.Continuity || gap[0].Advice == "" {
		t.Errorf("no advice: %+v", gap[0])
	}
}

// A relay that retries does not refer to an exit code: it has not exited.
func TestFailureNamesASection(t *testing.T) {
	for want, err := range map[string]error{
		"docs/access.md#postgres": fmt.Errorf("%w: no pg_hba.conf entry", replication.ErrAccess),
		"":                        replication.ErrSlotInUse,
		"docs/runbook.md#exit-1":  &pgconn.PgError{Code: "XX001"},
		"docs/runbook.md#exit-14": &pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}},
		"docs/recover.md#recover": refill.ErrUnfinished,
		"docs/bad-rows.md":        &undeliveredError{error: &encode.RowError{}},
		"docs/runbook.md#exit-11": replication.ErrSlotLost,

		"docs/bad-rows.md#send-the-row-to-the-dead-letter-topic": fmt.Errorf("%w; %w", &sink.RecordError{}, pump.ErrDeadLetter),
		"docs/park.md#release-a-key":                             fmt.Errorf("%w; %w", &encode.RowError{}, pump.ErrParkedFull),
		"docs/roles.md#create-them":                              &refill.CreationError{Err: &catalog.RightError{}},
		"docs/roles.md#which-role-runs-which-command":            &refill.CreationError{Err: &catalog.ReadError{}},
	} {
		var f Failures
		f.Add(err, time.Now())
		if step := f[0].Advice; want == "docs/access.md#postgres" && step != "Fix source.dsn, the role or pg_hba.conf, as the error says." {
			t.Errorf("%v: advice %q", err, step)
		}
		if f[0].Section != want {
			t.Errorf("%v: section %q, want %q", err, f[0].Section, want)
		}
	}
}

// What the record says after a stop names the section of the documentation, whatever the error brings along.
func TestStopAdvice(t *testing.T) {
	for want, err := range map[string]error{
		"docs/runbook.md#exit-14": &pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}},
		"docs/runbook.md#an-update-delete-or-truncate-stopped-the-relay": &pump.ChangeError{Kind: "DELETE"},
		"docs/runbook.md#another-process-uses-the-relays-identity":       sink.ErrSuperseded,
		"docs/runbook.md#exit-11":                                        replication.ErrSlotMissing,
	} {
		if got := StopAdvice(err); strings.Count(got, "docs/") != 1 || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %s", err, got, want)
		}
	}
}

// status shows what the record says after a stop, away from the output of the relay.
func TestStopAdviceAfterAnUnexpectedError(t *testing.T) {
	if got := StopAdvice(errors.New("unexpected")); !strings.Contains(got, "the relay's log") || strings.Contains(got, "above") {
		t.Error(got)
	}
}

// The advice about a renamed column names no key: which one it is stands in the error.
func TestAdviceOnAColumn(t *testing.T) {
	err := &encode.ColumnError{Table: "public.outbox", Problems: []string{`no column "type" (outbox.columns.type)`}}
	if advice := Advice(err); strings.Contains(advice, "payload") || !strings.Contains(advice, "in the key that the error names") {
		t.Error(advice)
	}
}

// If recover would refuse, the next step is not recover alone.
func TestNextIfRecoverRefuses(t *testing.T) {
	for _, cause := range []error{replication.ErrSlotMissing, replication.ErrSlotLost, &checkpoint.GapError{}} {
		if next := Next(fmt.Errorf("%w; %w", cause, catalog.ErrRefill)); strings.Contains(next, catalog.InstructRecover) || !strings.Contains(next, "by hand") {
			t.Errorf("%v: next: %s", cause, next)
		}
		if next := Next(fmt.Errorf("%w; %w", cause, catalog.ErrParts)); !strings.Contains(next, "publish the partitions as the error says") || !strings.Contains(next, catalog.InstructRecover) {
			t.Errorf("%v, partitions: next: %s", cause, next)
		}
	}
}

// After the loss of a slot whose table has no delivered row any more, there is one next step, with its condition.
func TestNextAfterALossOfAPrunedTable(t *testing.T) {
	for _, cause := range []error{replication.ErrSlotMissing, replication.ErrSlotLost, &checkpoint.GapError{}} {
		err := fmt.Errorf("%w; %w", cause, catalog.ErrPruned)
		if next := StopAdvice(err); !strings.Contains(next, "if only prune deletes rows, "+catalog.InstructUnpruned+" (docs") || strings.Count(next, catalog.InstructRecover) != 1 {
			t.Errorf("%v: next: %s", err, next)
		}
	}
}

// Recover is for rows that the WAL does not have as the table has them, not for those that it has and the relay cannot deliver.
func TestStopsThatRecoverIsFor(t *testing.T) {
	for err, want := range map[error]bool{
		rows.ErrColumnList: true, ErrOlderRow: true, replication.ErrPublication: true, replication.ErrUnpublished: true, catalog.ErrNoTable: true,
		&encode.ColumnError{}: false, &pump.ChangeError{Kind: "DELETE"}: false, &encode.RowError{}: false, replication.ErrSlotLost: false,
	} {
		if got := Recovers(fmt.Errorf("stopped: %w", err)); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
