package debezium

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/check"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// ready returns a slot that the relay can take over.
func ready() Takeover {
	return Takeover{
		Catalog: &catalog.State{
			ServerVersion: 170010, Database: "app", WALLevel: "logical", WALEnd: 0x5000, PublicationName: "p", SlotName: "s",
			Publication: &catalog.Publication{Name: "p", Insert: true},
			Slot:        &catalog.Slot{Name: "s", Plugin: "pgoutput", Database: "app", ConfirmedFlushLSN: 0x1000, WALStatus: "reserved"},
		},
		Offset:    &Offset{server: "shop", lsn: 0x2000, lsnProc: 0x2000, lsnCommit: 0x2000, txID: 7},
		Arguments: "-c outbox-cdc.yaml",
	}
}

// gap returns a start that finds the slot ahead of its record.
func gap(recorded pglogrepl.LSN) *relay.NextStart {
	p := checkpoint.Position{EndLSN: recorded}
	return &relay.NextStart{Record: &p, Broken: &checkpoint.GapError{Recorded: p, Reason: errors.New("advanced")}}
}

func TestCheckTakeover(t *testing.T) {
	type edit = func(*Takeover)
	for _, tt := range []struct {
		name      string
		change    edit
		condition string
		state     check.State
		says      string // part of Found or Fix
	}{
		{"ready", func(*Takeover) {}, "offset", check.Met, "--skip-to 0/2000"},
		{"the slot knows it all", func(t *Takeover) { t.Catalog.Slot.ConfirmedFlushLSN = 0x2000 }, "offset", check.Met, "there is nothing to skip"},
		{"the slot is ahead", func(t *Takeover) { t.Catalog.Slot.ConfirmedFlushLSN = 0x3000 }, "offset", check.Met, "there is nothing to skip"},
		{"in the middle of a transaction", func(t *Takeover) { t.Offset.lsn = 0x2800 }, "last transaction", check.Doubt, "at 0/2800, belongs to a transaction (7)"},
		{"no offset", func(t *Takeover) { t.Offset = nil }, "offset", check.Doubt, "position 0/1000"},
		{"no complete transaction", func(t *Takeover) { t.Offset.lsnCommit = 0 }, "offset", check.Doubt, "no complete transaction"},
		{"during the snapshot", func(t *Takeover) { t.Offset.snapshot = true }, "offset", check.Failed, "snapshot is not finished"},
		{"another server's offset", func(t *Takeover) { t.Offset.lsnCommit = 0x6000 }, "offset", check.Failed, "another server"},
		{"old server", func(t *Takeover) { t.Catalog.ServerVersion = 130020 }, "server", check.Failed, "PostgreSQL 14"},
		{"wal_level", func(t *Takeover) { t.Catalog.WALLevel = "replica" }, "wal_level", check.Failed, "ALTER SYSTEM"},
		{"standby", func(t *Takeover) { t.Catalog.InRecovery = true }, "primary", check.Failed, "connect to the primary"},
		{"no slot", func(t *Takeover) { t.Catalog.Slot = nil }, "slot", check.Failed, "no slot s"},
		{"plugin", func(t *Takeover) { t.Catalog.Slot.Plugin = "decoderbufs" }, "plugin", check.Failed, "use a second slot"},
		{"physical", func(t *Takeover) { t.Catalog.Slot.Plugin = "" }, "plugin", check.Failed, "physical"},
		{"database", func(t *Takeover) { t.Catalog.Slot.Database = "other" }, "database", check.Failed, "belongs to database other"},
		{"two_phase", func(t *Takeover) { t.Catalog.Slot.TwoPhase = true }, "two_phase", check.Failed, "on"},
		{"temporary", func(t *Takeover) { t.Catalog.Slot.Temporary = true }, "permanent", check.Failed, "temporary"},
		{"active", func(t *Takeover) { t.Catalog.Slot.Active, t.Catalog.Slot.ActivePID = true, 42 }, "inactive", check.Failed, "process 42"},
		{"lost", func(t *Takeover) { t.Catalog.Slot.WALStatus = "lost" }, "wal_status", check.Failed, "from 0/1000 on"},
		{"invalidated", func(t *Takeover) { t.Catalog.Slot.InvalidationReason = "rows_removed" }, "wal_status", check.Failed, "rows_removed"},
		{"nearly lost", func(t *Takeover) { t.Catalog.Slot.WALStatus = "unreserved" }, "wal_status", check.Doubt, "start the relay now"},
		{"no publication", func(t *Takeover) { t.Catalog.Publication = nil }, "publication", check.Failed, "no publication p"},
		{"no inserts", func(t *Takeover) { t.Catalog.Publication.Insert = false }, "inserts", check.Failed, "ALTER PUBLICATION p"},
		{"all tables", func(t *Takeover) {
			t.Catalog.Publication.Tables = []catalog.Table{{OID: 7, Schema: "public", Name: "hb"}}
		}, "neighbours", check.Doubt, `"public"."hb"`},
		{"never run", func(t *Takeover) { t.Next = &relay.NextStart{} }, "position record", check.Met, "no relay of this name"},
		{"republished since the record", func(t *Takeover) {
			t.Next = &relay.NextStart{Record: &checkpoint.Position{}, Broken: replication.ErrPublication}
		}, "position record", check.Failed, "run would exit with 13"},
		{"advanced after the record", func(t *Takeover) { t.Next = gap(0x2800) }, "position record", check.Failed, `outbox-cdc recover -c outbox-cdc.yaml --dsn "$OPERATOR_DSN"`},
		{"advanced, no offset", func(t *Takeover) { t.Next, t.Offset = gap(0x800), nil }, "position record", check.Failed, "give --offsets"},
		{"advanced by Debezium", func(t *Takeover) { t.Next = gap(0x800) }, "position record", check.Doubt, "nothing, if only Debezium has used the slot since then; otherwise: "},
		{"start after Debezium", func(t *Takeover) { t.Next = gap(0x800) }, "offset", check.Met, "outbox-cdc run -c outbox-cdc.yaml --accept-gap --skip-to 0/2000"},
		{"not covered", func(t *Takeover) { t.Catalog.Outboxes = []catalog.Outbox{{Configured: "x"}} }, "tables", check.Failed, "name your table in outbox.tables"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			takeover := ready()
			tt.change(&takeover)
			conditions := CheckTakeover(takeover)
			i := slices.IndexFunc(conditions, func(c check.Condition) bool { return c.Name == tt.condition })
			if i < 0 {
				t.Fatalf("no condition %s in %v", tt.condition, conditions)
			}
			c := conditions[i]
			if c.State != tt.state || !strings.Contains(c.Found+" "+c.Fix, tt.says) || c.State == check.Failed && c.Fix == "" {
				t.Errorf("%+v, want %s with %q", c, tt.state, tt.says)
			}
			if err := Ready(conditions); errors.Is(err, errNotReady) != (tt.state == check.Failed) {
				t.Errorf("Ready() = %v", err)
			}
			for _, other := range conditions {
				if other.State == check.Failed && other.Name != tt.condition {
					t.Errorf("fails too: %+v", other)
				}
			}
		})
	}
}
