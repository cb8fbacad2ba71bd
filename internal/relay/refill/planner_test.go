package refill

import (
	"bytes"
	"errors"
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

// What was interrupted goes on only if the configuration says so. status and check ask the same before a start.
func TestInterruptedCopiesAndRefills(t *testing.T) {
	copying, refilling := checkpoint.Position{Copying: true}, checkpoint.Position{Copying: true, Refill: new(checkpoint.Refill)}
	for name, tc := range map[string]struct {
		record   checkpoint.Position
		cfg      Config
		recovers bool
		want     error
	}{
		"nothing":               {checkpoint.Position{}, Config{}, false, nil},
		"copy":                  {copying, Config{}, false, ErrCopyUnfinished},
		"copy, configured":      {copying, Config{InitialCopy: true}, false, nil},
		"refill":                {refilling, Config{InitialCopy: true}, false, ErrUnfinished},
		"refill, configured":    {refilling, Config{OnLoss: true}, false, nil},
		"refill, with recover":  {refilling, Config{}, true, nil},
		"copy, with a loss set": {copying, Config{OnLoss: true}, true, ErrCopyUnfinished},
	} {
		p := NewPlanner(tc.cfg, newWriter(t, &positiontest.Store{}), nil, slog.New(slog.DiscardHandler))
		if tc.recovers {
			p.Recover()
		}
		if err := p.CheckFinished(&tc.record); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}
