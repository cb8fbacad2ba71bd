package check

// A definition says what a condition is about.
type definition struct {
	group, name string
	object      string // what it is looked at for each of: a table, broker or topic; empty: there is one
	asks        string // a question that is answered with yes where the condition is met
	atStart     bool   // run tells of it too, see [AtStart]
}

// definitions returns every condition that [Run] may return, in its order.
func definitions() []definition {
	return append(sourceDefinitions(), sinkDefinitions()...)
}

func sourceDefinitions() []definition {
	return []definition{
		{Source, "connection", "", "Does Postgres let the role into the database, by `pg_hba.conf`, password, TLS and `CONNECT`?", false},
		{Source, "catalog", "", "Does the server tell settings, publication, slot and open transactions?", false},
		{Source, "version", "", "Is it PostgreSQL 14 or later?", false},
		{Source, "minor release", "", "Does the minor release have the corrections without which decoding can lose changes or stop?", true},
		{Source, "wal_level", "", "Is `wal_level` `logical`?", false},
		{Source, "encoding", "", "Has the database an encoding whose text can be converted to UTF8?", false},
		{Source, "primary", "", "Is the server no standby?", false},
		{Source, "role", "", "Has the role `REPLICATION`?", false},
		{Source, "least privilege", "", "Is the role no superuser?", false},
		{Source, "messages", "", "Is it only for roles that need it to write logical messages into the WAL (`pg_logical_emit_message`), and may the relay?", false},
		{Source, "create", "", "May the role create the publication, where a start is to create it?", false},
		{Source, "slots left", "", "Is there room for the slot in `max_replication_slots`?", false},
		{Source, "senders left", "", "Is there room for its stream in `max_wal_senders`?", false},
		{Source, "clock", "", "Do the clocks of the database and of this machine agree within 5 s?", true},
		{Source, "replication connection", "", "Can a connection in replication mode be opened? It is, and closed again.", false},
		{Source, "pg_hba.conf", "", "Has the file no errors, as far as the role may see it? With one the server goes on with the file as it was.", false},
		{Source, "publication", "", "Is there the publication, or is it created?", false},
		{Source, "publish", "", "Does it publish inserts, and nothing that ends the relay?", false},
		{Source, "all tables", "", "Is it one of the outbox tables, and not of all tables?", false},
		{Source, "table", "table", "Is there the table, and is every row inserted into it published, without a row filter?", false},
		{Source, "owner", "table", "Does the role own the table, where a start is to publish it?", false},
		{Source, "via root", "table", "Do the rows of a partitioned table come as its own (`publish_via_partition_root`)?", false},
		{Source, "columns", "table", "Are all columns there that `outbox` names, of a type that can serve, and in the publication's column list if it has one?", false},
		{Source, "replica identity", "table", "Does the application keep its UPDATEs and DELETEs? Postgres refuses those that are published of rows without identity.", true},
		{Source, "select", "table", "May the role read the table, where a start is to copy it (`source.initial_copy`)?", false},
		{Source, "rows", "table", "Can the last 100 rows of the table become records? They are read if the role may.", false},
		{Source, "slot", "", "Is there the slot, or is it created?", false},
		{Source, "plugin", "", "Is it a slot for `pgoutput`?", false},
		{Source, "slot's database", "", "Is it one of the connection's database?", false},
		{Source, "permanent", "", "Is it neither temporary nor made with `two_phase`?", false},
		{Source, "wal_status", "", "Has the server all the log that it needs, and keeps it?", false},
		{Source, "safe_wal_size", "", "May the server write more than it has kept by now before the slot can be lost?", false},
		{Source, "held by", "", "Is nobody connected to it, or may the relay wait for its end (`source.wait_for_slot`)?", false},
		{Source, "failover", "", "Does a standby keep a copy of it, where `source.slot_failover` wants it?", false},
		{Source, "synchronized_standby_slots", "", "Does a standby stream from every slot that one with failover waits for?", true},
		{Source, "disk", "", "Is the log that a slot may hold limited, so that a relay that is away does not fill the disk?", false},
		{Source, "max_slot_wal_keep_size", "", "Is the limit at least 1 GB, and more than what is written in an hour, on average?", true},
		{Source, "idle_replication_slot_timeout", "", "Is a slot kept while nobody is connected, from PostgreSQL 18 on?", false},
		{Source, "open transactions", "", "Has no transaction, prepared ones included, been open for 5 minutes? One holds the log of every slot and stops the creation of slots.", false},
	}
}

func sinkDefinitions() []definition {
	return []definition{
		{Sink, "broker", "broker", "Does each of `sink.kafka.brokers` answer, after TLS and login?", false},
		{Sink, "cluster", "", "Does the cluster name its brokers?", false},
		{Sink, "advertised", "address", "Does each of the cluster's brokers answer where it says that clients reach it?", false},
		{Sink, "idempotent write", "", "May the user write with sequence numbers? A producer id is taken, as at every start.", false},
		{Sink, "topic", "topic", "Does the topic exist, or could it be created? The cluster is asked to check the creation, not to do it.", true},
		{Sink, "leaders", "topic", "Has every partition a leader?", true},
		{Sink, "rights", "topic", "May the user describe and write it, and read `position_topic`?", true},
		{Sink, "settings", "topic", "May the user read the topic's settings?", false},
		{Sink, "min.insync.replicas", "topic", "Are as many replicas in sync, and are there as many, as have to acknowledge?", true},
		{Sink, "durability", "topic", "Does an acknowledged record survive a broker, and does the topic go on without one?", false},
		{Sink, "cleanup.policy", "topic", "Does the topic keep every event, and take those without a key? Is `position_topic` compacted?", true},
		{Sink, "max.message.bytes", "topic", "Does the topic take records as large as the largest of the last rows makes?", true},
		{Sink, "message.timestamp.before.max.ms", "topic", "Does the topic take the time of commits after an outage of a day?", false},
		{Sink, "topic names", "", "Do the topics' names begin with text that no row decides, so that ACLs can bound where rows go?", false},
		{Sink, "other relays", "topic", "Has `position_topic` the positions of this relay only? Whoever may write there for another one can move and stop this one.", false},
		{Sink, "older writer", "", "With `--probe`: does the broker reject records of an older relay after a newer one has written?", false},
		{Sink, "probe topic", "", "With `--probe`: may the user create and delete a topic for that test?", false},
	}
}
