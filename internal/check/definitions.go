package check

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A definition describes a condition.
type definition struct {
	group, name string
	object      string // what it is tested for each of, such as table or topic; empty: it is tested once
	met         string // what is true if the condition is met
	atStart     bool   // run tests it too, see [AtStart]
}

// definitions returns every condition that [Run] may return for a broker, in this order.
func definitions(broker sink.Broker) []definition {
	return slices.Concat([]definition{
		{Configuration, "configuration", "", "Every parameter of `source.dsn` has an effect, connections to other machines are encrypted and verified, and no other setting limits what the relay can do.", true},
	}, sourceDefinitions(), sinkDefinitions(broker), []definition{
		{Sink, "known destinations", "", "The names of destinations are in the configuration or in the last rows. The check tests only those.", false},
		{Sink, "destinations", "", "The names of destinations begin with a fixed prefix, so that the rights of the user can limit those that rows select.", false},
	})
}

// sinkDefinitions returns the conditions that the package of the broker tests.
func sinkDefinitions(broker sink.Broker) []definition {
	inspector, ok := broker.(sink.Inspector)
	if !ok {
		return nil
	}
	var all []definition
	for _, c := range inspector.Conditions() {
		all = append(all, definition{Sink, c.Name, c.Object, c.Met, c.Short})
	}
	return all
}

func sourceDefinitions() []definition {
	return []definition{
		{Source, "connection", "", "Postgres accepts the role: `pg_hba.conf`, password, TLS and `CONNECT`.", false},
		{Source, "catalog", "", "The role can read settings, publication, slot and open transactions.", false},
		{Source, "provider", "", "Always, if the catalogs show a known provider of [managed servers](clouds.md). The fixes are then those for its servers.", false},
		{Source, "version", "", "The server is PostgreSQL 14 or later.", false},
		{Source, "minor release", "", "The minor release has the fixes without which decoding can lose changes or stop.", true},
		{Source, "wal_level", "", "`wal_level` is `logical`. From PostgreSQL 19 on, `replica` is enough on a primary: the slot raises `effective_wal_level`.", false},
		{Source, "encoding", "", "The database has an encoding that can be converted to UTF8.", false},
		{Source, "primary", "", "The server is the primary.", false},
		{Source, "role", "", "The role has `REPLICATION`.", false},
		{Source, "least privilege", "", "The role is not a superuser.", false},
		{Source, "messages", "", "The relay may write logical messages (`pg_logical_emit_message`). With `outbox.messages`, only roles that need it may too.", false},
		{Source, "create", "", "The role may create the publication, if `run` would create it.", false},
		{Source, "slots left", "", "`max_replication_slots` leaves room for the slot.", false},
		{Source, "senders left", "", "`max_wal_senders` leaves room for the relay's WAL sender.", false},
		{Source, "synchronous standbys", "", "`synchronous_standby_names` does not match the relay. Otherwise commits wait until the relay has delivered their rows.", true},
		{Source, "clock", "", "The clocks of the database server and this machine differ by at most 5 s.", true},
		{Source, "replication connection", "", "A replication connection can be opened. It is closed again.", false},
		{Source, "pg_hba.conf", "", "The file has no errors, if the role may see them. Postgres does not load a file with errors.", false},
		{Source, "publication", "", "The publication exists, or `run` creates it.", false},
		{Source, "publish", "", "The publication publishes INSERTs, and nothing that stops the relay.", false},
		{Source, "neighbours", "", "Every published table is an outbox table. Postgres decodes and sends the changes of the others, and the relay skips them.", false},
		{Source, "table", "table", "The table exists, and every INSERT into it, its partitions and its children by inheritance is published.", false},
		{Source, "row filter", "table", "The publication has no row filter.", false},
		{Source, "owner", "table", "The role owns the table, if `run` would publish it.", false},
		{Source, "via root", "table", "Changes of a partitioned table are published as its own (`publish_via_partition_root`). A refill needs that.", false},
		{Source, "columns", "table", "The table, and the publication's column list if there is one, has all columns of `outbox` with suitable types.", false},
		{Source, "replica identity", "table", "If UPDATEs or DELETEs are published, the table has a replica identity. Otherwise Postgres rejects them.", true},
		{Source, "refill", "table", "The table has the columns `xid` and `position`, so that `outbox-cdc recover` can send what a lost slot had not delivered.", false},
		{Source, "select", "table", "The role may read the table, if `source.initial_copy` or `source.on_slot_loss: refill` would read it.", true},
		{Source, "row security", "table", "Row-level security hides no row of the table from the role. The relay reads the WAL, which has every row; `recover`, `replay`, `audit`, `prune` and the keys of `select` read the table.", false},
		{Source, "rows", "table", "The last 100 rows of the table can become records. They are read only if the role may.", false},
		{Source, "slot", "", "The slot exists, or `run` creates it.", false},
		{Source, "plugin", "", "The slot uses `pgoutput`.", false},
		{Source, "slot's database", "", "The slot belongs to the database of `source.dsn`.", false},
		{Source, "permanent", "", "The slot is not temporary and has no `two_phase`.", false},
		{Source, "wal_status", "", "Postgres has all WAL that the slot needs, and retains it.", false},
		{Source, "safe_wal_size", "", "Postgres may write more WAL than it retains for the slot before it may invalidate the slot.", false},
		{Source, "held by", "", "Nothing streams from the slot, or a relay for which `run` would wait as a standby (`source.wait_for_slot`).", false},
		{Source, "position file", "", "This operating-system user can read and write `position.file`, if that is set. Not tested while a relay streams.", false},
		{Source, "position record", "", "`run` would continue at the position record: nobody has advanced or re-created the slot since, or changed and restored the publication, and it is not under another `name`. It has why the last relay stopped, if that stopped by itself. Not tested while a relay streams, and with a `position.file` on another machine.", false},
		{Source, "failover", "", "Standbys can synchronize the slot, if `source.slot_failover` is set.", false},
		{Source, "synchronized_standby_slots", "", "If the slot has failover, a standby streams from each of these slots.", true},
		{Source, "disk", "", "`max_slot_wal_keep_size` limits the retained WAL, so that a slot without a relay cannot fill the disk.", false},
		{Source, "max_slot_wal_keep_size", "", "The limit is at least 1 GB, and more than the average WAL of an hour.", true},
		{Source, "idle_replication_slot_timeout", "", "Postgres does not invalidate an idle slot (from PostgreSQL 18 on).", false},
		{Source, "open transactions", "", "No transaction, prepared ones included, has been open for 5 minutes. Postgres retains WAL for it, and creating a slot waits for it.", false},
	}
}
