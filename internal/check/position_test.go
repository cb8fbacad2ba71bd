package check

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// What the next start says of the position record, check says before.
func TestPositionRecord(t *testing.T) {
	t.Parallel()

	srv, fake := pgtest.StartOther(t, pgserver.Config{Settings: limited()}), kafkatest.Fake(t)
	const (
		refilling = "rows deleted, a relay that refills"
		pruned    = `INSERT INTO outbox (type, aggregatetype) VALUES ('T', 'x'); DELETE FROM outbox; SELECT pg_drop_replication_slot('SLOT')`
	)
	for name, tc := range map[string]struct {
		change    string // SLOT is the slot
		condition string
		says, fix string // in the condition; empty: it is met
	}{
		"no change":             {`SELECT 1`, positionRecord, "", ""},
		"slot advanced":         {`INSERT INTO outbox (type, aggregatetype) VALUES ('T', 'x'); SELECT pg_replication_slot_advance('SLOT', pg_current_wal_lsn())`, positionRecord, "run would exit with 15: slot", "outbox-cdc recover"},
		"slot re-created":       {`SELECT pg_drop_replication_slot('SLOT'); SELECT pg_create_logical_replication_slot('SLOT', 'pgoutput')`, positionRecord, "run would exit with 15: slot", "outbox-cdc recover"},
		"publication altered":   {`ALTER PUBLICATION pub SET (publish = 'update'); ALTER PUBLICATION pub SET (publish = 'insert, delete')`, positionRecord, "it was altered, and may not have published inserts", "if it has not, the rows of that time are not delivered: outbox-cdc recover"},
		"publication restored":  {`ALTER PUBLICATION pub DROP TABLE outbox; ALTER PUBLICATION pub ADD TABLE outbox`, positionRecord, "run would exit with 13: ", "do what the error says"},
		"slot dropped, a relay": {`SELECT pg_drop_replication_slot('SLOT')`, "slot", "a relay has used it", "outbox-cdc recover"},
		"rows deleted, too":     {pruned, "slot", "the gap cannot be refilled from the table: table", "if only prune deletes rows, outbox-cdc recover"},
		refilling:               {pruned, "slot", "the gap cannot be refilled from the table: table", "if only prune deletes rows, outbox-cdc recover"},
		"both dropped":          {`SELECT pg_drop_replication_slot('SLOT'); DROP PUBLICATION pub`, "slot", "a relay has used it", "outbox-cdc recover"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "slot advanced" && name != "slot dropped, a relay" {
				need.FullRun(t, "one change for each condition runs always")
			}
			r := whole(t, srv, fake.Cluster)
			if found := conditionOf(t, r, positionRecord); found.State != Met || !strings.Contains(found.Found, "no relay of this name has run yet") {
				t.Errorf("before the first start: %+v", found)
			}
			r.runOnce(t)
			r.change = func(c *Config) { // what is missing is created at a first start only
				c.Relay.RefillOnLoss = name == refilling
				if c.Relay.Create = relay.CreateSlot; strings.Contains(tc.change, "DROP PUBLICATION") {
					c.Relay.Create = relay.CreateAll
				}
			}
			for statement := range strings.SplitSeq(strings.ReplaceAll(tc.change, "SLOT", r.db.Name), "; ") {
				r.db.Exec(t, statement)
			}
			switch found := conditionOf(t, r, tc.condition); {
			case tc.says == "" && found.State != Met:
				t.Errorf("%+v", found)
			case tc.says != "" && ((found.State == Failed) == (name == "publication altered") || found.State == Met || !strings.Contains(found.Found, tc.says) || !strings.Contains(found.Fix, tc.fix)):
				t.Errorf("%+v, want %q, %q", found, tc.says, tc.fix)
			}
		})
	}
}

// A position under another name than the relay's, at which run would not start, fails with the words of run.
func TestPositionRecordOfAnotherName(t *testing.T) {
	t.Parallel()
	r, _, _ := beside(t)
	file := ""
	r.change = func(c *Config) {
		if file != "" {
			c.Relay.Positions = position.Place{File: file}
		}
	}
	r.set("name", "first")
	for _, place := range []string{"", filepath.Join(t.TempDir(), "positions")} {
		file = place
		r.runOnce(t)
		r.set("name", "second")
		if c := conditionOf(t, r, positionRecord); c.State != Failed || !strings.Contains(c.Found, `run would exit with 10: `) || !strings.Contains(c.Found, `under the name "first"`) || !strings.Contains(c.Found, "--accept-gap") {
			t.Errorf("in %q: %+v", place, c)
		}
		r.set("name", "first")
	}
}

// A record in a file is read, too, on the machine that has it. Without the file nobody knows whether a relay has run.
func TestPositionRecordInAFile(t *testing.T) {
	t.Parallel()
	r, _, _ := beside(t)
	file := filepath.Join(t.TempDir(), "positions")
	r.change = func(c *Config) { c.Relay.Positions = position.Place{File: file} }
	if conditions := Run(t.Context(), r.config(t)); slices.ContainsFunc(conditions, func(c Condition) bool { return c.Name == positionRecord }) {
		t.Errorf("a record without a file: %+v", conditionOf(t, r, positionRecord))
	}
	r.runOnce(t)
	if c := conditionOf(t, r, positionRecord); c.State != Met || !strings.Contains(c.Found, ", from ") {
		t.Errorf("%+v", c)
	}
	r.run(t, `SELECT pg_logical_emit_message(true, 'x', 'y')`, `SELECT pg_replication_slot_advance('`+r.db.Name+`', pg_current_wal_lsn())`)
	if c := conditionOf(t, r, positionRecord); c.State != Failed || !strings.Contains(c.Found, "run would exit with 15: slot") {
		t.Errorf("slot advanced: %+v", c)
	}
	if c := conditionOf(t, r, "position file"); c.State != Met {
		t.Errorf("%+v", c)
	}
	file = t.TempDir()
	if c := conditionOf(t, r, "position file"); c.State != Failed || !strings.Contains(c.Found, "run would exit with 20: ") || !strings.Contains(c.Found, "is a directory") || !strings.Contains(c.Fix, "let the operating-system user") {
		t.Errorf("no access: %+v", c)
	}
}

// If the broker is away, nobody knows whether a relay has used a slot that does not exist.
func TestPositionRecordOfABrokerThatIsAway(t *testing.T) {
	t.Parallel()
	r, _, _ := beside(t)
	r.set("sink.kafka.brokers", "127.0.0.1:1")
	r.change = func(c *Config) { c.Relay.Create, c.Timeout = relay.CreateSlot, 18*time.Second } // the broker gets a sixth of it
	if c := conditionOf(t, r, positionRecord); c.State != Doubt || !strings.Contains(c.Found, "cannot be read") {
		t.Errorf("%+v", c)
	}
	r.db.Exec(t, `SELECT pg_drop_replication_slot('`+r.db.Name+`')`)
	if c := conditionOf(t, r, "slot"); c.State != Failed || !strings.Contains(c.Found, "not known whether a relay has used it") || !strings.HasPrefix(c.Fix, "if a relay has used it, outbox-cdc recover") {
		t.Errorf("%+v", c)
	}
}

func conditionOf(t *testing.T, r *rig, name string) Condition {
	t.Helper()
	for _, c := range Run(t.Context(), r.config(t)) {
		if c.Group == Source && c.Name == name {
			return c
		}
	}
	t.Fatalf("no condition %q", name)
	return Condition{}
}

// runOnce runs the relay until it has recorded what a refill needs.
func (r *rig) runOnce(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cfg := r.config(t).Relay
	run, err := relay.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Run(ctx) }()
	wait.For(t, "a position record", func() bool {
		p, err := relay.Recorded(t.Context(), cfg, slog.New(slog.DiscardHandler))
		return err == nil && p != nil && len(p.Snapshots) > 0
	})
	stop()
	if err := wait.Receive(t, "the relay to stop", ended); err != nil {
		t.Fatal(err)
	}
}
