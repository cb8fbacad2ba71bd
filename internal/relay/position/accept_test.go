package position_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
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
