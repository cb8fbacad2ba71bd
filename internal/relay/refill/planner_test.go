package refill

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

func newWriter(tb testing.TB, store *positiontest.Store) *position.Positions {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	return position.New(position.Config{Store: positiontest.Open(tb, store, log), Log: log})
}

// A first start on a slot that exists warns that it makes no initial copy, unless it takes the slot over from another program.
func TestNoCopyOnASlotThatExists(t *testing.T) {
	for skipTo, warns := range map[pglogrepl.LSN]bool{0: true, 0x2A: false} {
		var log bytes.Buffer
		p := NewPlanner(Config{InitialCopy: true, SkipTo: skipTo}, newWriter(t, &positiontest.Store{}), nil, slog.New(slog.NewTextHandler(&log, nil)))
		if planned, err := p.Plan(t.Context(), checkpoint.Server{}, nil); planned != nil || err != nil {
			t.Fatalf("%+v, %v", planned, err)
		}
		if got := strings.Contains(log.String(), "no initial copy because the slot already existed"); got != warns {
			t.Errorf("skip to %s: %s", skipTo, log.String())
		}
	}
}
