package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Database and slot are dropped even if a WAL sender still streams when the test
// ends.
func TestDatabaseIsDropped(t *testing.T) {
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Helper()
		var db *pgtest.DB
		t.Run("streaming", func(t *testing.T) {
			db = pgtest.DatabaseOn(t, srv)
			db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE outbox`)
			stream := startStream(t, db)
			db.Exec(t, "INSERT INTO outbox VALUES ($1)", 1)
			if n := pgtest.QueryRow[int](t, db, "SELECT count(*) FROM outbox"); n != 1 {
				t.Errorf("%d rows", n)
			}
			for _, want := range []byte("BRIC") { // begin, relation, insert, commit
				if got := receive(t, stream); got != want {
					t.Fatalf("pgoutput message %q, want %q", got, want)
				}
			}
			db.Conn(t)
			db.Pool(t)
		})
		admin := &pgtest.DB{DSN: srv.DSN("postgres")}
		left := pgtest.QueryRow[int](t, admin, `SELECT (SELECT count(*) FROM pg_database WHERE datname = $1) +
			(SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1)`, db.Name)
		if left != 0 {
			t.Errorf("%d objects of %s were not dropped", left, db.Name)
		}
	})
}

func startStream(t *testing.T, db *pgtest.DB) *pgconn.PgConn {
	t.Helper()
	conn := db.ReplicationConn(t)
	if _, err := pglogrepl.CreateReplicationSlot(t.Context(), conn, db.Name, "pgoutput", pglogrepl.CreateReplicationSlotOptions{}); err != nil {
		t.Fatal(err)
	}
	err := pglogrepl.StartReplication(t.Context(), conn, db.Name, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'pub'"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// receive returns the type of the next pgoutput message.
func receive(t *testing.T, conn *pgconn.PgConn) byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		msg, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := msg.(*pgproto3.CopyData); ok && data.Data[0] == pglogrepl.XLogDataByteID {
			return data.Data[25] // after 'w', start, end and time
		}
	}
}

// A test can run two servers in addition to the shared one.
func TestServersOfOneTest(t *testing.T) {
	a := pgtest.Start(t, pgserver.Config{})
	b := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_level": "replica"}})
	if x, y := a.Addr(), b.Addr(); x == y || x == pgtest.Server(t).Addr() {
		t.Errorf("addresses %s and %s", x, y)
	}
	if got := pgtest.QueryRow[string](t, pgtest.DatabaseOn(t, b), "SHOW wal_level"); got != "replica" {
		t.Errorf("wal_level %s", got)
	}
	db := pgtest.DatabaseOn(t, a) // is not dropped, because the test kills the server
	if err := a.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cfg := db.Config(t); cfg.Port != uint16(a.Port()) || cfg.Database != db.Name {
		t.Errorf("config of %s: port %d, database %s", db.DSN, cfg.Port, cfg.Database)
	}
}
