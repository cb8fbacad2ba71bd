package relay

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
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
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// sentinels are the errors that the stages distinguish, by file and name.
var sentinels = map[string]map[string]error{
	"../../replication/errors.go": {
		"ErrUnreachable": replication.ErrUnreachable, "ErrAccess": replication.ErrAccess, "ErrSlotMissing": replication.ErrSlotMissing,
		"ErrSlotInUse": replication.ErrSlotInUse, "ErrBusy": replication.ErrBusy,
		"ErrPublication": replication.ErrPublication,
		"ErrUnpublished": replication.ErrUnpublished, "ErrRow": replication.ErrRow, "ErrServerStopping": replication.ErrServerStopping,
		"ErrConfig": replication.ErrConfig, "ErrSlotLost": replication.ErrSlotLost, "ErrWALRemoved": replication.ErrWALRemoved,
	},
	"../../sink/errors.go": {
		"ErrUnreachable": sink.ErrUnreachable, "ErrAccess": sink.ErrAccess, "ErrMissing": sink.ErrMissing,
		"ErrSuperseded": sink.ErrSuperseded, "ErrFenced": sink.ErrFenced, "ErrFatal": sink.ErrFatal,
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
		patience patience
		says     string // part of the advice
	}{
		"drain timeout":         {errDrainTimeout, 0, never, ""},
		"left behind":           {errPositionUnsaved, 0, never, ""},
		"bad row":               {&pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}}, 14, never, "pg_replication_slot_advance('<slot>', '0/AB'::pg_lsn + 1)"},
		"refused record":        {&pump.DeliveryError{CommitLSN: 0xAB, Err: &sink.RecordError{Reason: errors.New("no")}}, 14, never, "'0/AB'::pg_lsn + 1"},
		"row beyond the limit":  {&replication.RowError{CommitLSN: 0xAB, Err: replication.ErrRow}, 14, never, "'0/AB'::pg_lsn + 1"},
		"row of no transaction": {replication.ErrRow, 14, never, "fits into no record"},
		"not pgoutput":          {&decoder.Error{}, 1, never, "report it"},
		"missing column":        {&pump.DeliveryError{Err: &encode.ColumnError{}}, 13, never, "outbox.columns"},
		"column list":           {errors.Join(&encode.ColumnError{}, rows.ErrColumnList), 13, never, ""},
		"older row":             {errors.Join(&encode.ColumnError{}, errOlderRow), 13, never, "new in outbox.columns"},
		"update":                {&pump.ChangeError{Kind: "UPDATE", CommitLSN: 0xAB}, 13, never, "'0/AB'::pg_lsn + 1"},
		"delete":                {&pump.ChangeError{Kind: "DELETE"}, 13, never, "Start the relay again"},
		"truncate":              {&pump.ChangeError{Kind: "TRUNCATE"}, 13, never, "ALTER PUBLICATION <publication> SET"},
		"publication":           {replication.ErrPublication, 13, never, ""},
		"missing table":         {catalog.ErrNoTable, 13, never, ""},
		"no publication":        {replication.ErrUnpublished, 13, never, "outbox-cdc setup --drop"},
		"no slot":               {replication.ErrSlotMissing, 11, never, ""},
		"lost slot":             {replication.ErrSlotLost, 11, never, ""},
		"missing WAL":           {replication.ErrWALRemoved, 11, briefly, ""},
		"no password":           {&replication.CredentialsError{Err: errors.New("no token")}, 10, later, ""},
		"pooler":                {fmt.Errorf("%w: %w", replication.ErrConfig, &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"}), 10, never, ""},
		"setting":               {replication.ErrConfig, 10, never, ""},
		"wal_level":             {&catalog.WALLevelError{Level: "replica"}, 10, never, ""},
		"privilege":             {&pgconn.PgError{Code: "42501"}, 10, briefly, ""},
		"right":                 {&catalog.RightError{}, 10, briefly, ""},
		"gap":                   {&checkpoint.GapError{Recorded: recorded}, 15, never, "--accept-gap"},
		"unreadable record":     {position.ErrRecord, 15, never, "position_topic"},
		"other rows again":      {&checkpoint.RereadError{}, 15, never, "--accept-gap"},
		"promoted":              {position.ErrPromoted, 10, outage, ""},
		"ownership ended":       {ownershipEnded(&checkpoint.GapError{}), 10, outage, ""},
		"another owner":         {fmt.Errorf("topic p: %w", sink.ErrSuperseded), 12, standby, ""},
		"newer writer":          {sink.ErrSuperseded, 12, standby, ""},
		"slot changes hands":    {errSlotTaken, 12, standby, ""},
		"other server":          {errOtherServer, 10, outage, ""},
		"stood still":           {errSuspended, 10, outage, ""},
		"lost connection":       {errLostSender, 10, outage, ""},
		"other open rows":       {&checkpoint.PrefixError{}, 15, outage, ""},
		"store is away":         {fmt.Errorf("%w: %w", position.ErrNoStore, sink.ErrUnreachable), 20, outage, ""},
		"copy not finished":     {refill.ErrCopyUnfinished, 15, never, "initial_copy"},
		"keys are parked":       {position.ErrKeysParked, 15, never, "on_bad_record: park"},
		"parked keys are lost":  {position.ErrParkedLost, 15, never, "--accept-gap"},
		"refill not finished":   {refill.ErrUnfinished, 15, never, "outbox-cdc recover"},
		"no refill":             {fmt.Errorf("%w: no record", catalog.ErrRefill), 15, never, ""},
		"nothing lost":          {refill.ErrNothingLost, 0, never, ""},
		"position to skip to":   {fmt.Errorf("%w: it is after the end of the WAL", pump.ErrSkip), 2, never, ""},
		"fenced":                {sink.ErrFenced, 21, never, ""},
		"broker refuses":        {sink.ErrAccess, 20, briefly, ""},
		"topic missing":         {sink.ErrMissing, 20, never, ""},
		"no broker":             {sink.ErrUnreachable, 20, never, ""},
		"fatal answer":          {sink.ErrFatal, 20, never, ""},
		"broker with advice":    {advised{sink.ErrAccess}, 20, briefly, "as the broker advises"},
		"slot in use":           {replication.ErrSlotInUse, 12, standby, ""},
		"source refuses":        {replication.ErrAccess, 10, briefly, ""},
		"busy":                  {replication.ErrBusy, 10, outage, ""},
		"table is locked":       {fmt.Errorf("%w: %w", replication.ErrBusy, &catalog.LockError{}), 10, outage, "--set startup_timeout"},
		"lock is held":          {&advisory.HeldError{Err: replication.ErrBusy}, 1, standby, "pg_terminate_backend"},
		"stopping":              {replication.ErrServerStopping, 10, outage, ""},
		"no source":             {replication.ErrUnreachable, 10, outage, "source.dsn"},
		"anything else":         {errors.New("never heard of"), 1, briefly, ""},

		// If an error wraps two, the one that the operator must fix decides.
		"lost, and in use":                 {fmt.Errorf("%w: %w", replication.ErrSlotInUse, replication.ErrSlotLost), 11, never, ""},
		"bad row while the source is lost": {errors.Join(replication.ErrUnreachable, &pump.DeliveryError{Err: &encode.RowError{}}), 14, never, "dead-letter"},
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

// On the first contact the relay fails early, later it retries for longer. It logs once what it waits for.
func TestRetryWaitsAsLongAsTheErrorMayHeal(t *testing.T) {
	for name, tc := range map[string]struct {
		err          error
		first, later time.Duration // how long the relay retries; forever: without a limit
	}{
		"slot lost":      {replication.ErrSlotLost, 0, 0},
		"password":       {replication.ErrAccess, 0, limit},
		"the broker's":   {sink.ErrAccess, 0, limit},
		"anything else":  {errors.New("never heard of"), 0, limit},
		"server starts":  {replication.ErrUnreachable, limit, forever},
		"no free sender": {replication.ErrBusy, limit, forever},
		"slot in use":    {replication.ErrSlotInUse, forever, forever},
	} {
		for _, strict := range []bool{true, false} {
			want := tc.later
			if strict {
				want = tc.first
			}
			t.Run(fmt.Sprintf("%s, strict %t", name, strict), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log strings.Builder
					r := &retry{waits: &waitLog{log: slog.New(slog.NewTextHandler(&log, nil))}, limit: limit, strict: strict}
					began := time.Now()
					var err error
					for err == nil && bubble.Since(began) < forever {
						err = r.backOff(t.Context(), tc.err)
					}
					waited := bubble.Since(began)
					switch {
					case want == forever && err != nil:
						t.Errorf("given up after %s: %v", waited, err)
					case want != forever && (!errors.Is(err, tc.err) || waited < want || waited > want+maxBackoff):
						t.Errorf("%v after %s, want %s", err, waited, want)
					}
					lines := 0
					if want > 0 {
						lines = 1
					}
					awaited := "waiting for the source"
					switch {
					case errors.Is(tc.err, sink.ErrAccess):
						awaited = "waiting for the broker"
					case errors.Is(tc.err, replication.ErrSlotInUse):
						awaited = "level=INFO msg=\"standby: another process uses the slot\""
					}
					if n := strings.Count(log.String(), awaited); n != lines {
						t.Errorf("logged %d times, want %d:\n%s", n, lines, log.String())
					}
				})
			})
		}
	}
}

const (
	limit   = 30 * time.Second // Config.StartupTimeout
	forever = time.Hour
)

// The relay logs a waiting state when it starts: again after it has ended, and again if the cause changes.
func TestRetryLogsEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &retry{waits: &waitLog{log: slog.New(slog.NewTextHandler(&log, nil))}, limit: limit}
		wait := func(err error, times int) {
			for range times {
				if err := r.backOff(t.Context(), err); err != nil {
					t.Fatal(err)
				}
			}
		}
		for port := range 5 {
			wait(fmt.Errorf("%w: read from port %d", replication.ErrUnreachable, 40_000+port), 1)
		}
		inUse := func(pid int) error {
			return fmt.Errorf("%w: %w", replication.ErrSlotInUse, &pgconn.PgError{Code: "55006", Message: fmt.Sprintf(`replication slot "s1" is active for PID %d`, pid)})
		}
		for pid := range 5 { // several active relays take turns
			wait(inUse(17+pid), 1)
		}
		r.reset()
		wait(inUse(29), 5)
		wait(fmt.Errorf("%w; %w: no right to", inUse(29), errSenderKept), 5)
		var lines []string
		for line := range strings.Lines(log.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
			lines = append(lines, line)
		}
		want := []string{
			`level=WARN msg="waiting for the source" err="source unreachable: read from port 40000"`,
			`level=INFO msg="standby: another process uses the slot" pid=17`,
			`level=INFO msg="standby: another process uses the slot" pid=29`,
			fmt.Sprintf(`level=WARN msg="waiting for the source" err=%q`, inUse(29).Error()+"; "+errSenderKept.Error()+": no right to"),
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestFailuresMergeAndKeepTheLatest(t *testing.T) {
	var f failures
	now := time.Unix(1_700_000_000, 0)
	f.add(errors.New("read from port 5432"), now)
	f.add(errors.New("read from port 5433"), now.Add(time.Minute))
	if len(f) != 1 || f[0].Times != 2 || f[0].Text != "read from port 5433" || f[0].Last.Sub(f[0].First) != time.Minute || f[0].ExitCode != exit.Unexpected {
		t.Errorf("a repeated failure: %+v", f)
	}
	for _, text := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		f.add(errors.New(text), now)
	}
	if len(f) != maxFailures || f[0].Text != "b" || f[maxFailures-1].Text != "i" {
		t.Errorf("kept: %+v", f)
	}
	var gap failures
	gap.add(position.ErrRecord, now)
	if gap[0].ExitCode != exit.Continuity || gap[0].Advice == "" {
		t.Errorf("no advice: %+v", gap[0])
	}
}

// A relay that retries does not refer to an exit code: it has not exited.
func TestFailureNamesASection(t *testing.T) {
	for want, err := range map[string]error{
		"docs/access.md#postgres": fmt.Errorf("%w: no pg_hba.conf entry", replication.ErrAccess),
		"":                        replication.ErrSlotInUse,
		"docs/runbook.md#exit-14": &pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}},
		"docs/recover.md#recover": refill.ErrUnfinished,
		"docs/bad-rows.md":        &undeliveredError{error: &encode.RowError{}},
		"docs/runbook.md#exit-11": replication.ErrSlotLost,
	} {
		var f failures
		f.add(err, time.Now())
		if f[0].Section != want {
			t.Errorf("%v: section %q, want %q", err, f[0].Section, want)
		}
	}
}

// A standby that has waited for long keeps waiting while Postgres is down, for example during a failover. The limit
// for the first contact no longer applies to it.
func TestStandbySurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &retry{waits: &waitLog{log: slog.New(slog.DiscardHandler)}, limit: 30 * time.Second, strict: true}
		for began := time.Now(); bubble.Since(began) < time.Hour; {
			if err := r.backOff(t.Context(), replication.ErrSlotInUse); err != nil {
				t.Fatal(err)
			}
		}
		for began := time.Now(); bubble.Since(began) < 5*time.Minute; {
			if err := r.backOff(t.Context(), replication.ErrUnreachable); err != nil {
				t.Fatalf("after %s without Postgres: %v", bubble.Since(began), err)
			}
		}
		if err := r.backOff(t.Context(), replication.ErrSlotMissing); err == nil {
			t.Error("a missing slot is retried")
		}
	})
}

// The relay logs the end of a session with its cause, except if the next log line names the cause because the relay
// waits for it.
func TestSessionEndIsLoggedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		fail bool // FailIfSlotInUse
		want string
	}{
		"clean stop":     {nil, false, ""},
		"lost":           {replication.ErrUnreachable, false, ""},
		"final":          {replication.ErrSlotLost, false, ` err="replication slot invalidated"`},
		"standby":        {replication.ErrSlotInUse, false, ""},
		"is to be alone": {replication.ErrSlotInUse, true, ` err="replication slot in use"`},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			r := &Relay{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: Config{FailIfSlotInUse: tc.fail}}
			r.logEnd(t.Context(), 0x20, tc.err)
			if want := `msg="session ended" confirmed=0/20` + tc.want + "\n"; !strings.HasSuffix(log.String(), want) {
				t.Errorf("%s, want %s", &log, want)
			}
		})
	}
}

// What the record says after a stop names the section of the documentation, whatever the error brings along.
func TestStopAdvice(t *testing.T) {
	for want, err := range map[string]error{
		"docs/runbook.md#exit-14": &pump.DeliveryError{CommitLSN: 0xAB, Err: &encode.RowError{}},
		"docs/runbook.md#an-update-delete-or-truncate-stopped-the-relay": &pump.ChangeError{Kind: "DELETE"},
		"docs/runbook.md#exit-21": sink.ErrFenced,
		"docs/runbook.md#exit-11": replication.ErrSlotMissing,
	} {
		if got := stopAdvice(err); strings.Count(got, "docs/") != 1 || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %s", err, got, want)
		}
	}
}
