package pump

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

func TestSkipChecksThePositionAtTheStart(t *testing.T) {
	system := replication.System{ID: "1", Timeline: 1}
	for name, tc := range map[string]struct {
		start, slot, walEnd pglogrepl.LSN
		recorded, err, over bool
	}{
		"as it should be":   {slot: 100, walEnd: 300},
		"at the log's end":  {slot: 100, walEnd: 200},
		"behind the log":    {slot: 100, walEnd: 199, err: true},
		"already confirmed": {slot: 200, walEnd: 300, over: true},
		"the record is":     {slot: 100, start: 250, walEnd: 300, recorded: true, over: true},
		"the slot is newer, and positions are recorded":     {slot: 250, walEnd: 300, recorded: true, err: true},
		"the slot is newer, and positions are not recorded": {slot: 250, walEnd: 300, over: true},
		"the slot is newer, and so is the record":           {slot: 250, start: 250, walEnd: 300, recorded: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := NewSkip(200, tc.recorded, slog.New(slog.NewTextHandler(&log, nil)))
			err := s.StartSession(system, tc.start, tc.slot, tc.walEnd)
			if (err != nil) != tc.err || err != nil && !errors.Is(err, ErrSkip) || s.done != tc.over || (log.Len() > 0) != tc.over {
				t.Errorf("begin: %v, over %t, said %q", err, s.done, log.String())
			}
			if err != nil || tc.over {
				return
			}
			if err := s.StartSession(replication.System{ID: "1", Timeline: 2}, 0, 0, 1000); err != nil || s.covers(150) {
				t.Errorf("a position is kept on another timeline: %v", err)
			}
		})
	}
}
