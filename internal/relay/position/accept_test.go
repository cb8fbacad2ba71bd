package position_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// leftOutError is an error with an instruction that ends with --accept-gap.
type leftOutError struct{ error }

func (leftOutError) Reason() string { return "the publication was altered" }

// A start that accepts a gap does not log the instruction to accept it.
func TestAcceptedGapHasNoInstruction(t *testing.T) {
	var log bytes.Buffer
	p := position.New(position.Config{
		Store: positiontest.Open(t, &positiontest.Store{}, slog.New(slog.DiscardHandler)), AcceptGap: true, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	s := positiontest.Server(100)
	found := &position.Found{Position: &checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, EndLSN: 100}}
	err := p.Starter.Check(t.Context(), found, s, func(string) error {
		return leftOutError{errors.New("the publication was altered: start with --accept-gap")}
	})
	if text := log.String(); err != nil || !strings.Contains(text, `reason="the publication was altered"`) {
		t.Errorf("%v, log: %s", err, text)
	}
}

// A relay that finds the position of its slot under another name only does not start without it, unless it accepts a gap. The record of
// another slot, and that of an earlier slot of the same name, are not its own.
func TestAnotherName(t *testing.T) {
	s := positiontest.Server(100)
	for name, tc := range map[string]struct {
		change  func(*checkpoint.Position, *position.Config)
		refused bool
	}{
		"the last relay's":  {func(*checkpoint.Position, *position.Config) {}, true},
		"another slot's":    {func(p *checkpoint.Position, _ *position.Config) { p.Slot = "other" }, false},
		"another server's":  {func(p *checkpoint.Position, _ *position.Config) { p.SystemID = "2" }, false},
		"an earlier slot's": {func(p *checkpoint.Position, _ *position.Config) { p.EndLSN = 99 }, false},
		"gap accepted":      {func(_ *checkpoint.Position, cfg *position.Config) { cfg.AcceptGap = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, EndLSN: 100}
			store := &positiontest.Store{}
			positions := positiontest.New(t, store, func(cfg *position.Config) { tc.change(&p, cfg) })
			value, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			store.Values = []sink.StoredValue{{Key: sink.PositionKey, Value: value, Other: "first"}}
			found, err := positions.Recorder.Read(t.Context())
			if err != nil || found.Position != nil {
				t.Fatalf("%+v, %v", found, err)
			}
			err = positions.Starter.Check(t.Context(), found, s, func(string) error { return nil })
			if errors.Is(err, replication.ErrConfig) != tc.refused || tc.refused && !strings.Contains(err.Error(), `is recorded under the name "first", and the name of this relay is "orders"`) {
				t.Error(err)
			}
		})
	}
}

// Who has to find rows that were left out by hand reads which ones were delivered.
func TestLeftOutRowsHaveABound(t *testing.T) {
	s := positiontest.Server(100)
	found := &position.Found{Position: &checkpoint.Position{SystemID: s.SystemID, Timeline: s.Timeline, Slot: s.Slot, EndLSN: 100}}
	found.Position.Snapshots = []checkpoint.Snapshot{{EndLSN: 90, CommitTime: time.Unix(1_700_000_000, 0)}}
	left := leftOutError{errors.New("rows were left out")}
	err := positiontest.New(t, &positiontest.Store{}).Starter.Check(t.Context(), found, s, func(string) error { return left })
	if !errors.Is(err, left) || !strings.HasSuffix(err.Error(), "(rows committed before 2023-11-14T22:13:20Z are delivered)") {
		t.Error(err)
	}
}
