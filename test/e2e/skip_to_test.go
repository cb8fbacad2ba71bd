package e2e

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// ends returns the end LSNs of the transactions that have rows for w's slot.
func (w *watched) ends(t *testing.T) []pglogrepl.LSN {
	t.Helper()
	rows, err := w.db.Conn(t).Query(t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', $2)`, w.cfg.Source.Slot, rig.Publication)
	rig.Must(t, err)
	var all []pglogrepl.LSN
	inserted := false
	for rows.Next() {
		var data []byte
		rig.Must(t, rows.Scan(&data))
		switch data[0] {
		case 'I':
			inserted = true
		case 'C':
			if inserted {
				all = append(all, pglogrepl.LSN(binary.BigEndian.Uint64(data[10:])))
			}
			inserted = false
		}
	}
	rig.Must(t, rows.Err())
	return all
}

// Exactly the transactions that end at the position or before are not sent, and are told.
func TestSkipTo(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it starts a relay twelve times")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		const transactions = 6
		for _, tc := range []struct {
			to      func(ends []pglogrepl.LSN) pglogrepl.LSN
			skipped int
		}{
			{func(ends []pglogrepl.LSN) pglogrepl.LSN { return ends[0] }, 1},
			{func(ends []pglogrepl.LSN) pglogrepl.LSN { return ends[2] }, 3},
			{func(ends []pglogrepl.LSN) pglogrepl.LSN { return ends[2] + 1 }, 3},
			{func(ends []pglogrepl.LSN) pglogrepl.LSN { return ends[5] }, 6},
		} {
			w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns)
			w.cfg.Positions = position.Place{Topic: position.DefaultTopic}
			w.run(t)
			w.stop()
			w.fails(t, exit.OK)
			// A relay that had the slot before us has delivered some of it.
			for i := range transactions {
				w.db.Exec(t, `INSERT INTO outbox SELECT $1::int * 10 + n, $2, 'k', 'T', '{}' FROM generate_series(1, 3) n`, i, w.topic)
			}
			w.cfg.SkipTo = tc.to(w.ends(t))
			w.run(t)
			w.db.Exec(t, `INSERT INTO outbox VALUES (1000, $1, 'k', 'T', '{}')`, w.topic)
			got := ids(w.kafka.ReadN(t, 3*(transactions-tc.skipped)+1, w.topic))
			var want []string
			for i := tc.skipped; i < transactions; i++ {
				for n := 1; n <= 3; n++ {
					want = append(want, fmt.Sprint(i*10+n))
				}
			}
			if want = append(want, "1000"); !slices.Equal(got, want) {
				t.Errorf("to %s: ids %q, want %q", w.cfg.SkipTo, got, want)
			}
			w.logged(t, fmt.Sprintf("skip_to=%s transactions=%d", w.cfg.SkipTo, tc.skipped))
			rig.AwaitConfirmed(t, w.db.Conn(t), w.cfg.Source.Slot)
			w.stop()
			w.fails(t, exit.OK)

			w.run(t) // with the same flag, as a supervisor does
			w.logged(t, "nothing to skip")
			w.stop()
			w.fails(t, exit.OK)
		}
	})
}

// A position that cannot be one of this server's log is refused before anything is sent.
func TestSkipToRefused(t *testing.T) {
	t.Parallel()
	r := rig.New(t)
	r.Run(t).Terminate(t)
	r.Load.Run(t.Context(), t, 100)
	rig.Start(t, "run", "-c", r.Config, "--skip-to", "FFFF/0").Fails(t, exit.Usage, "FFFF/0", "end of the source's WAL")
	for _, text := range []string{"0", "16", "0/0", "0/16B3760x", "97500059720"} {
		if out, code := rig.Command(t, "run", "-c", r.Config, "--skip-to", text); code != exit.Usage || !strings.Contains(out, "skip-to") {
			t.Errorf("--skip-to %s: exit code %d\n%s", text, code, out)
		}
	}
	process := r.Run(t)
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
