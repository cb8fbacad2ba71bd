package relay

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// A first start on a slot that exists warns that it makes no initial copy, unless it takes the slot over from another program.
func TestNoCopyOnASlotThatExists(t *testing.T) {
	for skipTo, warns := range map[pglogrepl.LSN]bool{0: true, 0x2A: false} {
		var log bytes.Buffer
		r, err := New(Config{
			Positions: position.Place{Topic: "positions"}, InitialCopy: true, SkipTo: skipTo,
			Route: encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns()},
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if planned, err := r.planCopy(t.Context(), checkpoint.Server{}, nil); planned != nil || err != nil {
			t.Fatalf("%+v, %v", planned, err)
		}
		if got := strings.Contains(log.String(), "no initial copy because the slot already existed"); got != warns {
			t.Errorf("skip to %s: %s", skipTo, log.String())
		}
	}
}
