package position_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

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
