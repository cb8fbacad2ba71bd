package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// newMoving returns a rig whose server can be replaced by another one at the same address.
func newMoving(t *testing.T, srv *pgserver.Server) (*rig.Rig, *faultproxy.Proxy) {
	t.Helper()
	front := faultproxy.Start(t, srv.Addr())
	db := pgtest.DatabaseOn(t, srv)
	through := &pgtest.DB{Name: db.Name, Server: srv, DSN: fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", front.Addr(), db.Name)}
	return rig.NewOn(t, through, kafkatest.Broker(t)), front
}

// demandSystem demands that the position record is of the server that has db.
func demandSystem(t *testing.T, r *rig.Rig, db *pgtest.DB) {
	t.Helper()
	if p := r.Recorded(t); p.SystemID != pgtest.QueryRow[string](t, db, `SELECT system_identifier::text FROM pg_control_system()`) {
		t.Errorf("recorded is %+v", p)
	}
}

// pg_upgrade gives the server another system identifier and keeps the transaction ids. The relay stops, and recover
// refuses, until the operator says that the server was upgraded. The upgrade is from the oldest complete install
// to the newest one.
func TestRecoverAfterPgUpgrade(t *testing.T) {
	t.Parallel()
	installs := pgtest.Complete(t)
	from, to := installs[0], installs[len(installs)-1]
	t.Logf("from %s to %s", from, to)
	old := pgtest.Start(t, pgserver.Config{BinDir: from.BinDir})
	r, front := newMoving(t, old)
	deliverAndStop(t, r, 500)
	lost := now(t, r)
	r.Load.Run(t.Context(), t, 500)
	dropSlot(t, r) // pg_upgrade keeps none before 17
	upgraded := pgtest.StartOther(t, pgserver.Config{BinDir: to.BinDir, Upgrade: old})
	front.Redirect(upgraded.Addr())

	for _, flags := range [][]string{nil, refillOnLoss} {
		rig.Start(t, append([]string{"run", "-c", r.Config}, flags...)...).Fails(t, relay.ExitSlotLost, "does not exist")
	}
	runRecover(t, r, relay.ExitContinuity, nil, "the server is system", "--assume-upgraded", "nothing was changed")
	runRecover(t, r, relay.ExitContinuity, []string{"--assume-restored"}, "were written after the dump was restored")
	runRecover(t, r, relay.ExitOK, []string{"--assume-upgraded", "--dry-run"}, "rows of public.outbox")
	runRecover(t, r, relay.ExitOK, []string{"--assume-upgraded"}, "Refilled: ")
	r.GoesOn(t)
	settleRefill(t, r, refillDuplicates(t, r, lost))
	demandSystem(t, r, r.DB)
}

// A database that pg_dump has dumped and psql has restored on another server is refilled if the operator says so.
func TestRecoverAfterPgDump(t *testing.T) {
	t.Parallel()
	installs := pgtest.Complete(t)
	tools := installs[len(installs)-1]
	old := pgtest.Start(t, pgserver.Config{BinDir: installs[0].BinDir})
	restored := pgtest.StartOther(t, pgserver.Config{BinDir: tools.BinDir})
	r, front := newMoving(t, old)
	deliverAndStop(t, r, 3000)
	r.Load.Run(t.Context(), t, 500)
	dump := filepath.Join(t.TempDir(), "dump.sql")
	program(t, tools, "pg_dump", "--create", "--file", dump, r.DB.DSN)
	program(t, tools, "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", dump, restored.DSN("postgres"))
	front.Redirect(restored.Addr())

	runRecover(t, r, relay.ExitContinuity, nil, "the server is system", "--assume-restored", "nothing was changed")
	runRecover(t, r, relay.ExitContinuity, []string{"--assume-upgraded"}, "was not upgraded from the recorded one")
	runRecover(t, r, relay.ExitOK, []string{"--assume-restored"}, "Refilled: ")
	r.GoesOn(t)
	settleRefill(t, r, rig.Unconfirmed)
	demandSystem(t, r, r.DB)
}

// program runs a client program of an install.
func program(t *testing.T, i pgserver.Install, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), filepath.Join(i.BinDir, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
