package crash

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestSwitchover: the servers change places while the relay is stopped. The former primary, now a standby, comes first in
// the connection string, and has the slot of its time as primary. The relay reads from the primary; status and check
// name the slot that prevents the synchronization, and the statement that drops it.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it starts two servers, one of them twice")
	onEachWithSlotSync(t, func(t *testing.T, install pgserver.Install) {
		p := newPair(t, install, nil, keepsSlots)
		dsn := fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable", p.primary.Addr(), p.standby.Addr(), p.DB.Name)
		p.Config = rig.WriteConfig(t, dsn, p.Kafka.Addrs[0], p.Slot, p.Topic, "startup_timeout: 2s\n")
		p.setUp(t)
		process := p.Run(t)
		p.Deliver(t, 100)
		p.synced(t)
		process.Terminate(t)

		rig.Must(t, p.primary.Shutdown(t.Context()))
		p.onStandby(t).Exec(t, `SELECT pg_promote()`)
		p.rejoin(t)
		p.Load.Run(t.Context(), t, 100)

		process = p.Run(t)
		p.Arrived(t)
		if !pgtest.QueryRow[bool](t, p.onStandby(t), `SELECT active FROM pg_replication_slots WHERE slot_name = $1`, p.Slot) {
			t.Error("the relay does not read from the new primary")
		}
		drop := "SELECT pg_drop_replication_slot('" + p.Slot + "')"
		says := func(what, out string, texts ...string) {
			t.Helper()
			out = strings.Join(strings.Fields(out), " ") // status breaks lines
			for _, want := range texts {
				if !strings.Contains(out, want) {
					t.Errorf("%s does not say %q:\n%s", what, want, out)
				}
			}
		}
		out, code := rig.Command(t, "status", "-c", p.Config, "--set", "admin.listen=")
		if code != 0 {
			t.Errorf("status: exit code %d", code)
		}
		says("status", out, "A standby cannot synchronize the slot", p.primary.Addr(), drop)
		out, _ = rig.Command(t, "check", "-c", p.Config)
		says("check", out, "the standby at "+p.primary.Addr()+" has a slot", drop)
		process.Terminate(t)

		alone := []string{"-c", p.Config, "--dsn", p.primary.DSN(p.DB.Name)}
		out, code = rig.Command(t, append([]string{"run"}, alone...)...)
		if code != exit.Source {
			t.Errorf("run on the standby: exit code %d", code)
		}
		says("run on the standby", out, "is left from when it was the primary", drop)
		out, _ = rig.Command(t, append([]string{"status", "--set", "admin.listen="}, alone...)...)
		says("status of the standby", out, "The slot is left on a standby", drop)
		out, _ = rig.Command(t, append([]string{"check"}, alone...)...)
		says("check on the standby", out, "is left from when it was the primary", drop)

		former := &pgtest.DB{Name: p.DB.Name, Server: p.primary, DSN: p.primary.DSN(p.DB.Name)}
		former.Exec(t, drop)
		process = p.Run(t)
		if out, _ := rig.Command(t, "status", "-c", p.Config, "--set", "admin.listen="); strings.Contains(out, "synchronize") {
			t.Errorf("status after the slot was dropped:\n%s", out)
		}
		process.Terminate(t)
		p.Settle(t, 0)
	})
}

// rejoin starts the stopped primary as a standby of the other server.
func (p *pair) rejoin(t *testing.T) {
	t.Helper()
	host, port, _ := strings.Cut(p.standby.Addr(), ":")
	rig.Must(t, p.primary.WriteFile("standby.signal", nil))
	rig.Must(t, p.primary.WriteFile("postgresql.auto.conf",
		fmt.Appendf(nil, "primary_conninfo = 'host=%s port=%s user=postgres sslmode=disable'\nhot_standby = on\n", host, port)))
	rig.Must(t, p.primary.Restart(t.Context()))
	t.Cleanup(func() { // the database cannot be dropped there any more
		rig.Must(t, p.primary.Shutdown(context.WithoutCancel(t.Context())))
	})
	former := &pgtest.DB{Name: p.DB.Name, Server: p.primary, DSN: p.primary.DSN(p.DB.Name)}
	wait.For(t, "the former primary to stream", func() bool {
		return pgtest.QueryRow[bool](t, former, `SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')`)
	})
}
