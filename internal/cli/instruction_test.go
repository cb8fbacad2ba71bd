package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// status takes the broker from the command line, as run and check do.
func TestStatusTakesTheBrokerOfRun(t *testing.T) {
	t.Parallel()
	a := &app{}
	run := a.run()
	for _, name := range []string{"dsn", "brokers", "publication", "slot"} {
		for _, cmd := range []string{"status", "check"} {
			f := map[string]bool{"status": a.status().Flags().Lookup(name) != nil, "check": a.check().Flags().Lookup(name) != nil}
			if run.Flags().Lookup(name) == nil || !f[cmd] {
				t.Errorf("%s has no --%s", cmd, name)
			}
		}
	}
}

// The commands in the last line of the log have the configuration file, like those on standard error.
func TestLogOfTheStopHasTheConfiguration(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Sources{File: "relay.yaml", Content: []byte("log: {level: info, format: text}")})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = fmt.Errorf("%w: %s", replication.ErrSlotMissing, catalog.InstructRecover)
	logStop(t.Context(), command.NewLogger(cfg, &out), err, &relay.Stat{}, time.Second)
	if !strings.Contains(out.String(), "outbox-cdc recover -c relay.yaml --dsn") || !strings.Contains(out.String(), "exit_code=11") {
		t.Errorf("%s", &out)
	}
}

// A row that is too large for its topic is no reason to change the row.
func TestReplayOfALargeRow(t *testing.T) {
	t.Parallel()
	for tooLarge, want := range map[bool]string{true: "let topic orders accept larger records", false: "fix the row"} {
		if next := nextForRow(&sink.RecordError{Topic: "orders", TooLarge: tooLarge}); !strings.HasPrefix(next, want) {
			t.Errorf("too large %t: %q, want %q", tooLarge, next, want)
		}
	}
}

// After the loss of a slot, setup does not name itself as the next step.
func TestHindranceAfterSetup(t *testing.T) {
	t.Parallel()
	gap := &checkpoint.GapError{Reason: errors.New("the slot was re-created")}
	created := []catalog.Step{{Object: "slot s", Action: "created", LSN: 1}}
	for recovers, want := range map[string]string{catalog.InstructRecover: "next: outbox-cdc recover", catalog.InstructByHand: "next: send the missing rows: outbox-cdc replay"} {
		next := &relay.NextStart{Record: &checkpoint.Position{}, Broken: gap, Recover: recovers}
		if got := hindrance(next, created); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Replay has the exit code of every other command if a pooler has answered. Any other wrong setting is a mistake of its user.
func TestReplayThroughAPooler(t *testing.T) {
	t.Parallel()
	r := &replaying{sending: relay.Config{Source: replication.Config{Conn: new(pgconn.Config)}, Sink: kafka.Config{}}}
	refusal := fmt.Errorf("%w: %w", replication.ErrConfig, &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"})
	if f := r.failed(t.Context(), refusal); f.Exit != exit.Source || !strings.Contains(f.Next, "docs/clouds.md#poolers") {
		t.Errorf("exit code %d, next: %s", f.Exit, f.Next)
	}
	if f := r.failed(t.Context(), replication.ErrConfig); f.Exit != exit.Usage {
		t.Errorf("exit code %d, next: %s", f.Exit, f.Next)
	}
}
