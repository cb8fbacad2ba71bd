package crash

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A pair is a rig on a primary with a hot standby server. Relay and writers know both, and connect to the
// one that accepts writes.
type pair struct {
	*rig.Rig
	primary, standby *pgserver.Server
	between          *faultproxy.Proxy // for the standby server's replication connection
}

// newPair starts a primary and its standby server.
func newPair(t *testing.T, install pgserver.Install, primary, standby map[string]string) *pair {
	t.Helper()
	p := &pair{primary: pgtest.Start(t, pgserver.Config{BinDir: install.BinDir, Settings: primary})}
	db := pgtest.DatabaseOn(t, p.primary)
	p.between = faultproxy.Start(t, p.primary.Addr())
	p.standby = pgtest.Standby(t, p.primary, p.between.Addr(), db.Name, standby)
	both := &pgtest.DB{Name: db.Name, Server: p.primary, DSN: fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		p.primary.Addr(), p.standby.Addr(), db.Name)}
	p.Rig = rig.NewOn(t, both, kafkatest.Broker(t))
	return p
}

// failOver kills the primary and promotes the standby server.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.between.Refuse()
	rig.Must(t, p.primary.Kill(t.Context()))
	p.onStandby(t).Exec(t, `SELECT pg_promote()`)
}

// onStandby returns the database on the standby server, before or after its promotion.
func (p *pair) onStandby(t *testing.T) *pgtest.DB {
	t.Helper()
	return &pgtest.DB{Name: p.DB.Name, Server: p.standby, DSN: p.standby.DSN(p.DB.Name)}
}

// keepsSlots are the settings of a standby server that synchronizes the primary's logical slots. waits are
// those of a primary whose WAL senders wait for that standby server. See
// https://www.postgresql.org/docs/current/logicaldecoding-explanation.html#LOGICALDECODING-REPLICATION-SLOTS-SYNCHRONIZATION
var (
	keepsSlots = map[string]string{"sync_replication_slots": "on", "synchronized_standby_slots": ""}
	waits      = map[string]string{"synchronized_standby_slots": pgtest.StandbySlot}
)

// setUp creates publication and slot, and makes the slot a failover slot.
func (p *pair) setUp(t *testing.T) {
	t.Helper()
	if out, code := rig.Command(t, "setup", "-c", p.Config); code != 0 {
		t.Fatalf("setup: exit code %d\n%s", code, out)
	}
	if _, err := p.DB.ReplicationConn(t).Exec(t.Context(), `ALTER_REPLICATION_SLOT `+p.Slot+` (FAILOVER true)`).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// synced waits until the standby's copy of the slot would survive a promotion.
func (p *pair) synced(t *testing.T) {
	t.Helper()
	wait.For(t, "the standby to have the slot", func() bool {
		// Without traffic, Postgres writes this record rarely, and the synchronization waits for it.
		p.DB.Exec(t, `SELECT pg_log_standby_snapshot()`)
		p.onStandby(t).Exec(t, `SELECT pg_reload_conf()`) // wakes the slot synchronization worker
		return pgtest.QueryRow[bool](t, p.onStandby(t),
			`SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = $1 AND synced AND NOT temporary AND invalidation_reason IS NULL`, p.Slot)
	})
}

// showsCopy checks whether `status` of the standby server, before or after its promotion, describes a copy of the primary's slot.
func (p *pair) showsCopy(t *testing.T, want bool) {
	t.Helper()
	out, _ := rig.Command(t, "status", "-c", p.Config, "--dsn", p.onStandby(t).DSN, "--set", "admin.listen=")
	if strings.Contains(out, "of the primary's slot; last synchronization: successful") != want || !strings.Contains(out, "Slot "+p.Slot) {
		t.Errorf("status of the standby:\n%s", out)
	}
}

// onEachWithSlotSync runs f on each installed Postgres version that can synchronize slots.
func onEachWithSlotSync(t *testing.T, f func(t *testing.T, install pgserver.Install)) {
	t.Helper()
	pgtest.EachInstall(t, func(t *testing.T, install pgserver.Install) {
		if install.Major >= 17 {
			t.Parallel()
			f(t, install)
		}
	})
}

// standbyAway disconnects the standby server for a while. The primary's WAL sender waits for it meanwhile,
// and the relay logs that.
func (p *pair) standbyAway(t *testing.T, process *rig.Process) {
	t.Helper()
	p.between.Refuse()
	p.Load.Run(t.Context(), t, 50)
	process.Logged(t, "Postgres waits for a standby in synchronized_standby_slots")
	p.between.Accept()
	p.Arrived(t)
}

// phantoms returns how many events were delivered that the database does not have.
func phantoms(t *testing.T, r *rig.Rig, conn *pgx.Conn) int {
	t.Helper()
	rig.Must(t, r.Collector.CatchUp(t.Context()))
	has := map[string]int{}
	rows, _ := conn.Query(t.Context(), `SELECT aggregateid, count(*)::int FROM outbox GROUP BY 1`)
	var key string
	var n, phantoms int
	_, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { has[key] = n; return nil })
	rig.Must(t, err)
	for key := range r.Load.Snapshot() {
		phantoms += max(0, int(r.Ledger.Delivered(key))-has[key])
	}
	return phantoms
}

// lostTail is part of the warning that the promoted server lacks delivered rows.
const lostTail = "the promoted server lacks the end of the old WAL"

// A lagging standby server is promoted, while the relay runs or between two runs. The relay continues on
// the new timeline with the standby server's copy of its slot, at the recorded position. If that position
// is past the end of the old timeline, the relay continues at the promotion and logs a warning. This
// happens only if the primary did not wait for the standby server. The relay does not resend rows that
// both servers have.
func TestFailover(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	onEachWithSlotSync(t, func(t *testing.T, install pgserver.Install) {
		for name, tc := range map[string]struct {
			primary map[string]string
			restart bool
		}{
			"the primary waits":                      {waits, false},
			"the primary waits, between two runs":    {waits, true},
			"the primary does not wait":              {nil, false},
			"the primary does not wait, between two": {nil, true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPair(t, install, tc.primary, keepsSlots)
				p.setUp(t)
				process := p.Run(t)
				p.Load.Run(t.Context(), t, 500)
				p.Arrived(t)
				p.synced(t)
				p.showsCopy(t, true)
				if tc.primary != nil {
					p.standbyAway(t, process)
				}
				p.Confirmed(t)
				p.replayed(t)
				before := p.Load.Total()

				p.between.Partition()
				p.Load.Run(t.Context(), t, 100)
				late := p.Load.Total() - before
				if tc.primary != nil {
					late = 0
					wait.For(t, "the walsender to wait for the standby", func() bool {
						return pgtest.QueryRow[bool](t, p.DB, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'WaitForStandbyConfirmation')`)
					})
				} else {
					p.Arrived(t)
				}
				if tc.restart {
					process.Terminate(t)
				}
				record := p.Recorded(t)
				began := time.Now()
				p.failOver(t)
				if n := phantoms(t, p.Rig, p.Connect(t)); n != late {
					t.Errorf("%d events were delivered that the new primary does not have, want %d", n, late)
				}
				if tc.restart {
					process = p.Run(t)
				}
				process.Logged(t, "timeline=2 from=")
				p.Load.Run(t.Context(), t, 500)
				p.Arrived(t)
				t.Logf("%v from the end of the primary to the last row of its successor, %d phantoms", time.Since(began).Round(time.Millisecond), late)
				p.Confirmed(t)
				p.showsCopy(t, false)
				now := p.Recorded(t)
				if now.Timeline != 2 || now.TimelineStart == 0 || tc.restart && (now.TimelineStart < record.EndLSN) != (late > 0) {
					t.Errorf("recorded was %s of timeline %d, and is %+v", record.EndLSN, record.Timeline, now)
				}
				if n := process.Times(lostTail); (n > 0) != (late > 0) || n > 1 {
					t.Errorf("the relay logs %d warnings about %d rows that the server lost\n%s", n, late, process.Stderr)
				}
				process.Terminate(t)
				p.GoesOn(t) // from the position record, which now has the new timeline
				p.Settle(t, late)
			})
		}
	})
}

// A standby server without a copy of the slot is promoted, and the slot is created there. Some rows may
// precede that slot, also if the standby server had all rows. So the relay does not continue by itself.
func TestFailoverToAnotherSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		for name, tc := range map[string]struct {
			late   int // rows that the standby server never has
			says   string
			frozen bool // the relay is frozen until the slot exists
		}{
			"the standby has everything":               {0, "re-created by somebody else", false},
			"the standby lacks a tail":                 {2000, "left timeline 1", false},
			"the standby has everything, relay frozen": {0, "re-created by somebody else", true},
			"the standby lacks a tail, relay frozen":   {2000, "left timeline 1", true},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, srv.Install(), nil, nil)
				process := p.Run(t)
				p.Load.Run(t.Context(), t, 500)
				p.Arrived(t)
				p.replayed(t) // the rows so far: the relay does not wait for the standby server
				late := 0
				if tc.late > 0 {
					p.between.Partition()
					before := p.Load.Total()
					p.Load.Run(t.Context(), t, tc.late)
					p.Arrived(t)
					late = p.Load.Total() - before
				}
				p.AwaitSnapshotOfAll(t) // the relay then writes no more of them
				p.Confirmed(t)
				if tc.late == 0 {
					p.replayed(t)
				}
				if tc.frozen {
					process.Signal(t, syscall.SIGSTOP)
				}
				p.failOver(t)
				if !tc.frozen {
					process.Fails(t, exit.SlotLost, p.Slot, "does not exist", "outbox-cdc setup")
				}
				record := p.Recorded(t) // nothing writes to it now
				if out, code := rig.Command(t, "setup", "-c", p.Config); code != 0 {
					t.Fatalf("setup: exit code %d\n%s", code, out)
				}
				slot := pgtest.QueryRow[bool](t, p.onStandby(t), `SELECT confirmed_flush_lsn <= $1::pg_lsn FROM pg_replication_slots`, record.EndLSN.String())
				if slot != (late > 0) {
					t.Fatalf("the slot is not where this test wants it: record %s", record.EndLSN)
				}
				if tc.frozen {
					process.Signal(t, syscall.SIGCONT)
					process.Fails(t, exit.Continuity, tc.says)
					record = p.Recorded(t) // once more, after the relay has continued
				}
				for range 2 { // the first run leaves a claim
					p.Refused(t, exit.Continuity, tc.says, record.EndLSN.String(), "--accept-gap")
				}
				process = p.Run(t, "--accept-gap")
				p.Load.Run(t.Context(), t, 500+5*tc.late)
				p.Arrived(t)
				process.Terminate(t)
				p.GoesOn(t)
				p.Settle(t, late)

				rig.Must(t, p.primary.Restart(t.Context())) // it is the first host in source.dsn
				p.Refused(t, exit.Continuity, "the server is on timeline 1, the record is of timeline 2", "the primary from before a promotion")
			})
		}
	})
}

// replayed waits until the standby server has replayed all of the primary's WAL.
func (p *pair) replayed(t *testing.T) {
	t.Helper()
	end := pgtest.QueryRow[string](t, p.DB, `SELECT pg_current_wal_lsn()::text`)
	wait.For(t, "the standby to replay the log", func() bool {
		return pgtest.QueryRow[bool](t, p.onStandby(t), `SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, end)
	})
}

// The primary and the relay are killed under load. The restarted relay waits for the promotion, and
// delivers every event that the promoted server has, once.
func TestFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	onEachWithSlotSync(t, func(t *testing.T, install pgserver.Install) {
		p := newPair(t, install, waits, keepsSlots)
		p.setUp(t)
		process := p.Run(t)
		p.Load.Run(t.Context(), t, 100)
		p.Arrived(t)
		p.synced(t)
		rig.UnderLoad(t, p.Rig, func() {
			p.Progress(t)
			rig.Must(t, p.primary.Kill(t.Context()))
			process.Kill(t)
			process = rig.Start(t, "run", "-c", p.Config, "--set", "startup_timeout=60s")
			process.Logged(t, "waiting for the source")
			p.failOver(t)
			began := time.Now()
			process.Logged(t, "timeline=2")
			p.Progress(t)
			t.Logf("%v from the promotion to the first new event", time.Since(began).Round(time.Millisecond))
			p.Progress(t)
		})
		p.Arrived(t)
		process.Terminate(t)
		p.Settle(t, 0)
	})
}

// A standby server without a copy of the slot is promoted. It cannot deliver what the slot had left, so
// the relay stops instead of continuing after a gap.
func TestFailoverWithoutSlot(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it builds and promotes a standby server")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		p := newPair(t, srv.Install(), nil, nil)
		process := p.Run(t)
		p.Load.Run(t.Context(), t, 500)
		p.Arrived(t)
		p.failOver(t)
		process.Fails(t, exit.SlotLost, p.Slot, "does not exist", "outbox-cdc setup")
		p.Refused(t, exit.SlotLost, p.Slot) // and the next start does not create the slot
		p.Settle(t, 0)
	})
}

// A server that was restored from a base backup has no slots, because base backups do not contain them.
func TestRestoredBackup(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restores a backup")
	pgtest.OldestAndNewest(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		old := pgtest.Start(t, pgserver.Config{BinDir: srv.Install().BinDir})
		front := faultproxy.Start(t, old.Addr())
		db := pgtest.DatabaseOn(t, old)
		through := &pgtest.DB{Name: db.Name, Server: old, DSN: fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", front.Addr(), db.Name)}
		r := rig.NewOn(t, through, kafkatest.Broker(t))
		process := r.Run(t)
		r.Load.Run(t.Context(), t, 500)
		r.Arrived(t)
		restored := pgtest.Restored(t, old)
		r.Load.Run(t.Context(), t, 500)
		r.Arrived(t)

		front.Redirect(restored.Addr())
		process.Fails(t, exit.SlotLost, r.Slot, "does not exist")
		r.Refused(t, exit.SlotLost, r.Slot)
		r.Settle(t, 0)
	})
}
