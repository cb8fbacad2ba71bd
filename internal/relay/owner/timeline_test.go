package owner

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
)

// Rows that this process has read on the old timeline also count as delivered, even if the position record lags.
func TestWarnLostTail(t *testing.T) {
	record := &checkpoint.Position{SystemID: "1", Timeline: 1, Slot: "s", EndLSN: 300, WrittenAt: time.Unix(0, 0)}
	of1 := slotIdentity{system: replication.System{ID: "1", Timeline: 1}, slot: "s"}
	for name, tc := range map[string]struct {
		record *checkpoint.Position
		read   pglogrepl.LSN // by the ownership; 0: no ownership
		server checkpoint.Server
		want   string // empty: no warning

		standby bool // the ownership has read from a standby
	}{
		"no record":                    {record: nil, read: 0, server: positiontest.Promoted(200, 100), want: ""},
		"not promoted":                 {record: record, read: 0, server: positiontest.Server(100), want: ""},
		"nothing is lost":              {record: record, read: 0, server: positiontest.Promoted(300, 100), want: ""},
		"nothing that was read":        {record: record, read: 350, server: positiontest.Promoted(350, 100), want: ""},
		"behind the record":            {record: record, read: 0, server: positiontest.Promoted(200, 100), want: "timeline=1 from=0/C8 to=0/12C"},
		"behind the record, read more": {record: record, read: 350, server: positiontest.Promoted(200, 100), want: "timeline=1 from=0/C8 to=0/15E"},
		"behind what was read":         {record: record, read: 350, server: positiontest.Promoted(320, 100), want: "timeline=1 from=0/140 to=0/15E"},
		"read from the promoted one":   {record: record, read: 350, server: positiontest.Promoted(320, 100), standby: true},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := New(Config{Pump: pump.Config{Progress: new(pump.Progress)}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if tc.read != 0 {
				o.ownership, o.standby = &ownership{id: of1}, tc.standby
				o.cfg.Pump.Progress.Add(&pump.Counts{Received: tc.read})
			}
			for range 2 { // the session may be lost before the position is recorded
				o.WarnLostTail(t.Context(), tc.record, tc.server)
			}
			lines := strings.Count(log.String(), "\n")
			if !strings.Contains(log.String(), tc.want) || lines > 1 || (lines == 0) != (tc.want == "") {
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}
