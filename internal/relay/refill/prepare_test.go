package refill

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// Kafka may be away when the slot is lost, which is the usual reason for its loss. The relay then waits for Kafka.
func TestRefillWaitsForTheStore(t *testing.T) {
	for name, store := range map[string]*positiontest.Store{
		"unreachable": {Refuse: fmt.Errorf("%w: connection refused", sink.ErrUnreachable)},
		"silent":      {Silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewPlanner(Config{}, newWriter(t, store), nil, nil)
				if _, err := p.readRecord(t.Context()); !errors.Is(err, position.ErrNoStore) { // for which the relay waits
					t.Error(err)
				}
			})
		})
	}
}

// The reason that is logged while the slot is refilled does not say to refill it.
func TestReason(t *testing.T) {
	state := catalog.State{ServerVersion: 170000, WALLevel: "logical", SlotName: "s", Publication: &catalog.Publication{Insert: true, AllTables: true}}
	l := Loss{Cause: state.Verify()}
	if got, want := l.Reason(), `replication slot missing: slot "s" does not exist`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A server that cannot be used is the reason, although there is no position record: perhaps source.dsn names the wrong one.
func TestServerBeforeMissingRecord(t *testing.T) {
	conn, err := pgconn.ParseConfig("postgres://cdc@127.0.0.1:1/app?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Source: replication.Config{Conn: conn, Publication: "p", Slot: "s"}, Timeout: time.Minute}
	if _, err := Find(t.Context(), cfg, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, replication.ErrUnreachable) {
		t.Error(err)
	}
}

// If the relay cannot refill, its error does not also say to refill.
func TestOneInstruction(t *testing.T) {
	missing := fmt.Errorf("%w: slot s does not exist; %s creates the slot", replication.ErrSlotMissing, catalog.InstructRecover)
	pruned := fmt.Errorf("%w: table t has no delivered row: %s", catalog.ErrPruned, catalog.InstructUnpruned)
	err := Unrefilled(missing, pruned)
	if strings.Count(err.Error(), catalog.InstructRecover) != 1 || !strings.HasSuffix(err.Error(), catalog.InstructUnpruned) {
		t.Errorf("error = %v", err)
	}
	byHand := &catalog.UnrefillableError{Err: fmt.Errorf("%w; %s", replication.ErrSlotMissing, catalog.InstructByHand)}
	if err := Unrefilled(byHand, pruned); !strings.Contains(err.Error(), catalog.InstructByHand) {
		t.Errorf("error = %v", err)
	}
}

// What the operator has said of the tables holds until the refill of that loss is done, even if the new slot is lost too.
func TestOperatorIsAskedOncePerLoss(t *testing.T) {
	server := checkpoint.Server{SystemID: "7", Timeline: 1}
	lost := checkpoint.Position{SystemID: "7", Timeline: 1, Snapshots: []checkpoint.Snapshot{{Text: "5:5:"}}}
	for said, record := range map[bool]checkpoint.Position{
		true:  lost.BeginRefill(server, 0x500, "8:8:", true),
		false: lost.BeginRefill(server, 0x500, "8:8:", false),
	} {
		l := &Loss{Record: lost, begins: record, server: server}
		if err := l.selectRows(); err != nil || l.missing.Assume.Unpruned != said {
			t.Errorf("assumes %+v, %v, want %t", l.missing.Assume, err, said)
		}
	}
}

// The slot continues at the record, but not with every row: a relay has stopped at rows that the WAL does not have as the table has them.
func TestStopThatRecoverIsFor(t *testing.T) {
	server := checkpoint.Server{SystemID: "7", Timeline: 1, Slot: "s", Confirmed: 0x500, WALEnd: 0x600}
	record := checkpoint.Position{SystemID: "7", Timeline: 1, Slot: "s", EndLSN: 0x500}
	l := &Loss{server: server, state: new(catalog.State)}
	for name, tc := range map[string]struct {
		stop *checkpoint.Stop
		lost bool
	}{
		"none":                {nil, false},
		"another":             {&checkpoint.Stop{ExitCode: 14, Reason: "a row"}, false},
		"left out":            {&checkpoint.Stop{ExitCode: 13, Reason: "no column; instruction", Recover: true}, true},
		"by a former version": {&checkpoint.Stop{ExitCode: 13, Reason: "no column"}, false},
	} {
		record.Stopped = tc.stop
		if err := l.leavesOut(&record); (err != nil) != tc.lost {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.Cause = l.leavesOut(&checkpoint.Position{SystemID: "7", Timeline: 1, Slot: "s", EndLSN: 0x400}); l.Cause == nil {
		t.Error("a slot ahead of the record is no loss")
	}
}
