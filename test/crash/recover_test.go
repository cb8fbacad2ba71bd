package crash

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A standby server that has neither the slot nor the end of the WAL is promoted. Snapshots from after the
// end of the old timeline are invalid there, because the new primary reuses the same transaction ids.
// Recover uses the newest earlier snapshot, and every row of the new primary arrives in order.
func TestRecoverAfterFailover(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
		p := newPair(t, srv.Install(), nil, nil)
		process := p.Run(t)
		p.Load.Run(t.Context(), t, 500)
		p.Arrived(t)
		p.AwaitSnapshotOfAll(t)
		shared := p.Recorded(t).Snapshots
		p.Confirmed(t)
		p.replayed(t)
		p.between.Partition()
		before := p.Load.Total()
		p.Load.Run(t.Context(), t, 1000)
		p.Arrived(t)
		late := p.Load.Total() - before
		p.AwaitSnapshotOfAll(t) // it sees the tail
		p.failOver(t)
		process.Fails(t, exit.SlotLost, p.Slot, "outbox-cdc recover")
		if record := p.Recorded(t); record.Timeline != 1 || record.Snapshots[0].EndLSN == shared[0].EndLSN {
			t.Fatalf("recorded is %+v", record)
		}
		p.Load.Run(t.Context(), t, 500+8*late) // the same events, with transaction ids that the lost WAL has used too
		out, code := rig.Command(t, "recover", "-c", p.Config)
		if code != 0 || !strings.Contains(out, lostTail) || !strings.Contains(out, "Refilled: ") {
			t.Fatalf("recover: exit code %d\n%s", code, rig.Tail(out, 30))
		}
		process = p.Run(t)
		p.Load.Run(t.Context(), t, 500)
		p.Confirmed(t) // while it runs: the server also writes WAL of its own, 56 bytes now and then
		process.Terminate(t)
		if now := p.Recorded(t); now.Timeline != 2 || now.Refill != nil {
			t.Errorf("recorded is %+v", now)
		}
		p.Settle(t, late+500)
	})
}

// A server that was restored from a backup without slots, on the same timeline, uses transaction ids a second time. Recover does not take the
// rows of such transactions for delivered: it refuses, because the row that was delivered last is missing.
func TestRecoverRefusesABackupWithoutSlots(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restores a copy of a server")
	for name, deliver := range map[string]func(t *testing.T, r *rig.Rig){
		"stream": func(t *testing.T, r *rig.Rig) {
			process := r.Run(t)
			r.Load.Run(t.Context(), t, 2000)
			r.Arrived(t)
			r.AwaitSnapshotOfAll(t)
			process.Terminate(t)
		},
		"refill": func(t *testing.T, r *rig.Rig) {
			r.DB.Exec(t, `SELECT pg_drop_replication_slot($1)`, r.Slot)
			r.Load.Run(t.Context(), t, 2000)
			succeeds(t, "recover", "-c", r.Config)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, pg := rig.NewOwn(t)
			copied := deliverAndCopy(t, r, pg)
			rig.Must(t, os.RemoveAll(filepath.Join(copied, "pg_replslot", r.Slot)))
			deliver(t, r)
			last := r.Recorded(t)

			// The original has every row: recover finds the witness.
			r.DB.Exec(t, `SELECT pg_drop_replication_slot($1)`, r.Slot)
			if out := succeeds(t, "recover", "-c", r.Config, "--dry-run"); !strings.Contains(out, "0 rows of") {
				t.Fatalf("recover on the original:\n%s", rig.Tail(out, 30))
			}

			restore(t, pg, copied)
			outrun(t, r, last.EndLSN)
			for _, args := range [][]string{{"--dry-run"}, nil} {
				out, code := rig.Command(t, append([]string{"recover", "-c", r.Config}, args...)...)
				if code != exit.Continuity || !strings.Contains(out, "restored from a backup") || !strings.Contains(out, "docs/recover.md#the-last-delivered-row-is-missing") {
					t.Fatalf("recover %v: exit code %d\n%s", args, code, rig.Tail(out, 30))
				}
			}
		})
	}
}

// succeeds runs a command that must succeed, and returns what it prints.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	out, code := rig.Command(t, args...)
	if code != exit.OK {
		t.Fatalf("%q: exit code %d\n%s", args, code, rig.Tail(out, 30))
	}
	return out
}

// Recover cannot refill from a promoted server that lags behind every recorded snapshot, nor from an old
// primary. It names the server and changes nothing.
func TestRecoverRefusesAnotherHistory(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	pgtest.NewestTwo(t, func(t *testing.T, srv *pgserver.Server) {
		p := newPair(t, srv.Install(), nil, nil)
		p.replayed(t)
		p.between.Partition()
		process := p.Run(t)
		p.Load.Run(t.Context(), t, 500)
		p.Arrived(t)
		p.AwaitSnapshot(t)
		process.Terminate(t)
		p.failOver(t)
		p.onStandby(t).Exec(t, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox`)
		out, code := rig.Command(t, "recover", "-c", p.Config)
		if code != exit.Continuity || !strings.Contains(out, "no snapshot from before that") || !strings.Contains(out, "nothing was changed") {
			t.Errorf("recover: exit code %d\n%s", code, rig.Tail(out, 30))
		}
		if n := pgtest.QueryRow[int](t, p.onStandby(t), `SELECT count(*)::int FROM pg_replication_slots WHERE slot_type = 'logical'`); n > 0 {
			t.Errorf("%d slots", n)
		}
	})
}
