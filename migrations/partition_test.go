package migrations

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at)
	VALUES (gen_random_uuid(), 'order', '1', 'OrderPaid', clock_timestamp() + $1 * interval '1 day')`

func partitioned(t *testing.T, srv *pgserver.Server) *pgtest.DB {
	t.Helper()
	db := pgtest.DatabaseOn(t, srv)
	if _, err := Up(t.Context(), pool(t, db), Config{Partitioned: true}); err != nil {
		t.Fatal(err)
	}
	return db
}

// day returns the name of the partition that is n days after today.
func day(days int) string {
	return "outbox_" + time.Now().UTC().AddDate(0, 0, days).Format("20060102")
}

func TestPartitionedTableRoutesAndPublishesThroughItsRoot(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := partitioned(t, srv)
		db.Exec(t, `CREATE PUBLICATION cdc FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`)
		db.Exec(t, `SELECT pg_create_logical_replication_slot('cdc_`+db.Name+`', 'pgoutput')`)
		for _, days := range []int{0, 3, 100} {
			db.Exec(t, insert, days)
		}
		// A partition that is created later is published too, and continues the identity column.
		db.Exec(t, `SELECT outbox_create_partitions($1)`, InitialDays+1)
		db.Exec(t, insert, InitialDays+1)

		got := pgtest.QueryRow[[]string](t, db, `SELECT array_agg(tableoid::regclass::text ORDER BY position) FROM outbox`)
		want := []string{day(0), day(3), "outbox_default", day(InitialDays + 1)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("partitions (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"outbox", "outbox", "outbox", "outbox"}, inserted(t, db)); diff != "" {
			t.Errorf("tables in the stream (-want +got):\n%s", diff)
		}
		db.Exec(t, `DROP TABLE `+day(3)) // as prune does
	})
}

// inserted returns the table of each Insert message in the stream of the slot
// (https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html).
func inserted(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	messages := pgtest.QueryRow[[][]byte](t, db, `SELECT array_agg(data) FROM pg_logical_slot_get_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'cdc')`, "cdc_"+db.Name)
	names := make(map[uint32]string)
	var tables []string
	for _, m := range messages {
		switch m[0] {
		case 'R':
			fields := bytes.SplitN(m[5:], []byte{0}, 3)
			names[binary.BigEndian.Uint32(m[1:])] = string(fields[1])
		case 'I':
			tables = append(tables, names[binary.BigEndian.Uint32(m[1:])])
		}
	}
	return tables
}

func TestCreatePartitionsIsIdempotentAndHoldsUpNoWriter(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := partitioned(t, srv)
		writer := db.Conn(t)
		tx, err := writer.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), insert, 0); err != nil {
			t.Fatal(err)
		}
		// The transaction stays open. A lock that conflicts with writers would have to wait for it.
		made, errs := make([][]string, 4), make([]error, 4)
		var wg sync.WaitGroup
		for i := range made {
			conn := db.Conn(t)
			wg.Go(func() {
				if _, errs[i] = conn.Exec(t.Context(), `SET lock_timeout = '5s'`); errs[i] != nil {
					return
				}
				var rows pgx.Rows
				if rows, errs[i] = conn.Query(t.Context(), `SELECT outbox_create_partitions($1)`, InitialDays+2); errs[i] != nil {
					return
				}
				made[i], errs[i] = pgx.CollectRows(rows, pgx.RowTo[string])
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, names := range made {
			all = append(all, names...)
		}
		want := []string{"public." + day(InitialDays+1), "public." + day(InitialDays+2)}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("created by 4 concurrent callers (-want +got):\n%s", diff)
		}
		if _, err := tx.Exec(t.Context(), insert, 1); err != nil {
			t.Errorf("open transaction: %v", err)
		}
	})
}

func TestCreatePartitionsLeavesDaysOfTheDefaultPartitionAlone(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := partitioned(t, srv)
		db.Exec(t, insert, InitialDays+1)
		cfg := db.Conn(t).Config()
		var warnings []string
		cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { warnings = append(warnings, n.Message) }
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		rows, err := conn.Query(t.Context(), `SELECT outbox_create_partitions($1)`, InitialDays+2)
		if err != nil {
			t.Fatal(err)
		}
		made, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"public." + day(InitialDays+2)}, made); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		date := time.Now().UTC().AddDate(0, 0, InitialDays+1).Format(time.DateOnly)
		if len(warnings) != 1 || !strings.Contains(warnings[0], fmt.Sprintf("no partition of outbox for %s:", date)) {
			t.Errorf("warnings = %q, want one about %s", warnings, date)
		}
	})
}

// The bounds are UTC days in every time zone and date style of the session.
func TestPartitionBoundsDoNotDependOnTheSession(t *testing.T) {
	t.Parallel()
	db := partitioned(t, pgtest.Server(t))
	conn := db.Conn(t)
	if _, err := conn.Exec(t.Context(), `SET timezone = 'Pacific/Auckland'; SET datestyle = 'German'`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SELECT outbox_create_partitions($1)`, InitialDays+1); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `ALTER DATABASE `+db.Name+` SET timezone = 'UTC'`)
	got := pgtest.QueryRow[string](t, db, `SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = $1::text::regclass`, day(InitialDays+1))
	from := time.Now().UTC().AddDate(0, 0, InitialDays+1)
	want := fmt.Sprintf("FOR VALUES FROM ('%s 00:00:00+00') TO ('%s 00:00:00+00')",
		from.Format(time.DateOnly), from.AddDate(0, 0, 1).Format(time.DateOnly))
	if got != want {
		t.Errorf("bounds are %s, want %s", got, want)
	}
}
