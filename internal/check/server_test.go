package check

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// These mistakes need a server of their own, and some fixes need a restart.
func TestBrokenServer(t *testing.T) {
	for _, tt := range []struct {
		broken

		major    int // 0: the default
		settings map[string]string
		restarts bool // the fix requires a restart
	}{
		{broken: broken{
			name: "wal_level", breaks: func(_ *testing.T, r *rig) { r.set("source.create", "slot") },
			title: "wal_level", state: Failed, says: "replica",
		}, settings: map[string]string{"wal_level": "replica"}, restarts: true},
		{broken: broken{
			name: "no slot left", rare: true, breaks: func(t *testing.T, r *rig) {
				r.set("source.create", "slot")
				r.run(t, "SELECT pg_create_physical_replication_slot('other')")
			},
			title: "slots left", state: Failed, says: "0 of max_replication_slots = 1",
		}, settings: map[string]string{"max_replication_slots": "1"}, restarts: true},
		{broken: broken{
			name: "no sender left", rare: true, breaks: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput"); r.db.ReplicationConn(t) },
			title: "senders left", state: Failed, says: "0 of max_wal_senders = 1", also: []string{"replication connection"},
		}, settings: map[string]string{"max_wal_senders": "1"}, restarts: true},
		{broken: broken{
			name: "slot lost", breaks: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput"); r.loseSlot(t) },
			title: "wal_status", state: Failed, says: "lost", also: []string{"max_slot_wal_keep_size"},
			mend: func(t *testing.T, r *rig) {
				r.run(t, "SELECT pg_drop_replication_slot('"+r.db.Name+"')")
				r.makeSlot(t, "pgoutput")
			},
		}, settings: map[string]string{"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"}},
		{broken: broken{
			name: "taken for a standby", rare: true, breaks: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput") },
			title: "synchronous standbys", state: Doubt, says: "has Outbox-CDC, which matches the relay (outbox-cdc)",
			mend: func(t *testing.T, r *rig) {
				r.run(t, "ALTER SYSTEM SET synchronous_standby_names = 'standby_1'", "SELECT pg_reload_conf()")
			},
		}, settings: map[string]string{"synchronous_standby_names": `ANY 1 (standby_1, "Outbox-CDC")`, "synchronous_commit": "local"}},
		{broken: broken{
			name: "error in pg_hba.conf", rare: true, breaks: func(t *testing.T, r *rig) {
				r.makeSlot(t, "pgoutput")
				r.role = "postgres"
				hba(t, r, "host all all 127.0.0.1/32 trust\nhost all all 127.0.0.1/99 trust\n")
			},
			title: "pg_hba.conf", state: Doubt, says: "line 2", also: []string{"least privilege"},
			mend: func(t *testing.T, r *rig) { hba(t, r, "host all all 127.0.0.1/32 trust\n") },
		}},
		{broken: broken{
			name: "not let in", rare: true, breaks: func(t *testing.T, r *rig) {
				r.makeSlot(t, "pgoutput")
				hba(t, r, "host all postgres 127.0.0.1/32 trust\n")
				r.run(t, "SELECT pg_reload_conf()")
				r.untilRefused(t)
			},
			title: "connection", state: Failed, says: "no pg_hba.conf entry",
			mend: func(t *testing.T, r *rig) {
				hba(t, r, "host all all 127.0.0.1/32 trust\n")
				r.run(t, "SELECT pg_reload_conf()")
			},
		}},
		{broken: broken{
			name: "idle slots are dropped", breaks: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput") },
			title: "idle_replication_slot_timeout", state: Doubt, says: "1h0m0s",
		}, major: 18, settings: map[string]string{"idle_replication_slot_timeout": "1h"}},
		{broken: broken{
			name: "standby is gone", breaks: func(t *testing.T, r *rig) {
				r.run(t, "SELECT pg_create_physical_replication_slot('standby')",
					"SELECT pg_create_logical_replication_slot('"+r.db.Name+"', 'pgoutput', false, false, true)")
			},
			title: "synchronized_standby_slots", state: Failed, says: "standby",
			mend: func(t *testing.T, r *rig) {
				r.run(t, "ALTER SYSTEM SET synchronized_standby_slots = ''", "SELECT pg_reload_conf()",
					"SELECT pg_drop_replication_slot('"+r.db.Name+"')")
				r.makeSlot(t, "pgoutput")
			},
		}, major: 17, settings: map[string]string{"synchronized_standby_slots": "standby"}},
		{broken: broken{
			name: "slot without failover", breaks: func(t *testing.T, r *rig) { r.makeSlot(t, "pgoutput"); r.set("source.slot_failover", "true") },
			title: "failover", state: Doubt, says: "created without failover",
			mend: func(t *testing.T, r *rig) {
				r.run(t, "SELECT pg_drop_replication_slot('"+r.db.Name+"')",
					"SELECT pg_create_logical_replication_slot('"+r.db.Name+"', 'pgoutput', false, false, true)",
					"SELECT pg_create_physical_replication_slot('standby')")
			},
		}, major: 17},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.major > 0 {
				need.FullRun(t, fmt.Sprintf("it takes Postgres %d", tt.major))
			}
			if tt.rare {
				need.FullRun(t, "a server for one more case")
			}
			settings := limited()
			maps.Copy(settings, tt.settings)
			srv := pgtest.Start(t, pgserver.Config{Major: tt.major, Settings: settings})
			fake := kafkatest.Fake(t)
			r := newRig(t, srv, fake.Cluster)
			r.topic, r.positions = fake.Topic(t, 2, nil), fake.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
			tt.breaks(t, r)
			if mend := tt.mend; mend == nil && tt.restarts {
				tt.mend = func(t *testing.T, r *rig) {
					t.Helper()
					r.mend(t, r.unmet(t)[tt.title])
					if err := srv.Restart(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			expect(t, r, tt.broken)
		})
	}
}

func hba(t *testing.T, r *rig, lines string) {
	t.Helper()
	if err := r.db.Server.WriteFile("pg_hba.conf", []byte(lines)); err != nil {
		t.Fatal(err)
	}
}

// untilRefused waits until the server rejects connections of the role.
func (r *rig) untilRefused(t *testing.T) {
	t.Helper()
	dsn := strings.Replace(r.db.DSN, "//postgres@", "//"+r.role+"@", 1)
	for {
		conn, err := pgconn.Connect(t.Context(), dsn)
		if err != nil {
			return
		}
		_ = conn.Close(t.Context())
	}
}

// loseSlot writes WAL until the server has invalidated the slot.
func (r *rig) loseSlot(t *testing.T) {
	t.Helper()
	for range 50 {
		r.run(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000)) FROM generate_series(1, 20)", "SELECT pg_switch_wal()", "CHECKPOINT")
		if pgtest.QueryRow[string](t, r.db, fmt.Sprintf("SELECT wal_status FROM pg_replication_slots WHERE slot_name = '%s'", r.db.Name)) == "lost" {
			return
		}
	}
	t.Fatal("the slot is not lost")
}

func TestBehind(t *testing.T) {
	for _, tt := range []struct {
		major, minor, fixed int
		loses               bool // the bug loses changes while other sessions write
	}{
		{14, 17, 19, true},
		{14, 18, 19, false},
		{14, 19, 0, false},
		{15, 12, 14, true},
		{16, 9, 10, false},
		{17, 4, 6, true},
		{17, 5, 6, false},
		{17, 6, 0, false},
		{18, 0, 0, false},
	} {
		broken, fixed := behind(tt.major, tt.minor)
		if fixed != tt.fixed || (broken == releases()[0].broken) != tt.loses || (broken == "") != (fixed == 0) {
			t.Errorf("%d.%d: fixed in %d, %q", tt.major, tt.minor, fixed, broken)
		}
	}
}

// Each form of synchronous_standby_names has its names.
func TestStandbyNames(t *testing.T) {
	for setting, want := range map[string]string{
		"": "", "*": "*", "a, b": "a b", `1 (a, "b ""c""", *)`: `a b "c" *`, "ANY 2(a,b)": "a b", "first 1 ( a )": "a", "any": "any", `"2 (a)"`: "2 (a)",
	} {
		if got := strings.Join(standbyNames(setting), " "); got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
}
