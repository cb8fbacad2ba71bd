package e2e

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// unsuitable gives a role short timeouts, other formats and other defaults of transactions.
const unsuitable = `
	ALTER ROLE $ROLE SET statement_timeout = '100ms'; ALTER ROLE $ROLE SET idle_in_transaction_session_timeout = '100ms';
	ALTER ROLE $ROLE SET idle_session_timeout = '5s'; ALTER ROLE $ROLE SET lock_timeout = '100ms'; ALTER ROLE $ROLE SET tcp_user_timeout = '100ms';
	ALTER ROLE $ROLE SET wal_sender_timeout = '10ms'; ALTER ROLE $ROLE SET default_transaction_read_only = on;
	ALTER ROLE $ROLE SET default_transaction_isolation = 'serializable'; ALTER ROLE $ROLE SET default_transaction_deferrable = on;
	ALTER ROLE $ROLE SET datestyle = 'German'; ALTER ROLE $ROLE SET bytea_output = 'escape'; ALTER ROLE $ROLE SET standard_conforming_strings = off;
	ALTER ROLE $ROLE SET quote_all_identifiers = on; ALTER ROLE $ROLE SET client_encoding = LATIN1; ALTER ROLE $ROLE SET lc_monetary = 'pt_BR.UTF-8'`

// The settings of a role change neither what the relay sends nor for how long it may read, nor what the other commands do.
func TestSettingsOfARole(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it starts a relay for each setting")
	const rows = 30_000
	locales := pgtest.Locales(t, "pt_BR.UTF-8", "nl_NL.UTF-8", "ja_JP.UTF-8")
	pgtest.EachInstall(t, func(t *testing.T, i pgserver.Install) {
		t.Parallel()
		db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{BinDir: i.BinDir, Locales: locales}))
		r := rig.NewOn(t, db, kafkatest.Broker(t))
		role := db.Role(t, unsuitable, `ALTER ROLE $ROLE REPLICATION; GRANT CREATE ON DATABASE $ROLE TO $ROLE; ALTER TABLE outbox OWNER TO $ROLE;
			ALTER TABLE outbox ADD COLUMN price money`)
		if i.Major >= 17 {
			db.Exec(t, "ALTER ROLE "+role+" SET transaction_timeout = '100ms'")
		}
		dsn := strings.Replace(db.DSN, "postgres@", role+"@", 1)
		r.Config = rig.WriteConfig(t, dsn, r.Kafka.Addrs[0], r.Slot, r.Topic,
			"outbox.place: [{column: price, to: header}]\noutbox.encoding.headers: simple\ndebezium.decimals: string\n")
		process := r.Run(t)
		db.Exec(t, `
			INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, created_at, price)
			SELECT gen_random_uuid(), 'order', n::text, 'T', '"Zoë €"', now() - interval '1 day', 12.50::numeric::money
			FROM generate_series(1, $1::int) n`, rows)
		for _, rec := range r.Kafka.ReadN(t, rows, r.Topic) {
			if price := rig.Header(rec, "price"); price != "12.50" || string(rec.Value) != `"Zoë €"` {
				t.Fatalf("price %s, value %s", price, rec.Value)
			}
		}
		if n := process.Times("msg=streaming"); n != 1 {
			t.Errorf("%d sessions, want one:\n%s", n, process.Stderr)
		}
		if out, code := rig.Command(t, "prune", "-c", r.Config, "--older-than", "1h"); code != 0 {
			t.Errorf("prune: exit code %d\n%s", code, out)
		}
		if left := pgtest.QueryRow[int](t, db, "SELECT count(*)::int FROM outbox"); left != 0 {
			t.Errorf("%d rows are left", left)
		}
		db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'last', 'T', '1')`)
		wait.For(t, "the last row", func() bool { return r.Collector.Count() > rows })
		r.AwaitSnapshot(t)
		for _, verb := range [][]string{{"replay", "--where", "true", "--dry-run"}, {"audit", "--since", "1h"}} {
			if out, code := rig.Command(t, append([]string{verb[0], "-c", r.Config}, verb[1:]...)...); code != 0 {
				t.Errorf("%v: exit code %d\n%s", verb, code, out)
			}
		}
		process.Terminate(t)
		dropSlot(t, r)
		db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'missing', 'T', '1')`)
		runRecover(t, r, exit.OK, nil, "Refilled: ")
		wait.For(t, "the missing row", func() bool { return r.Collector.Count() > rows+1 })
	})
}
