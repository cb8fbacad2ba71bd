// Package migrations creates, upgrades and drops the outbox table and the inbox tables.
//
//	applied, err := migrations.Up(ctx, db, migrations.Config{}) // the table outbox
//	...
//	applied, err = migrations.Up(ctx, db, migrations.Config{Part: migrations.Inbox}) // the inbox tables
//
// The command `outbox-cdc migrate` does the same. If you have a migration tool of your own, [Print] writes
// the SQL for it.
//
// [Up], [Down] and [Status] use goose. They record what they applied in the table
// outbox_cdc_migrations, in the schema of the tables. The first migration creates it and the last [Down]
// drops it, so goose's own history table of your application is not touched. One history table serves all
// outbox tables of its schema and the inbox.
//
// This package does not create the publication and the slot: `outbox-cdc setup` does. Create them after the
// table, the publication first.
//
// # Partitioned outbox
//
// With [Config].Partitioned the outbox table is range-partitioned by the UTC day of created_at. To delete
// old events you drop a partition, without dead rows and vacuum. The primary key is (id, created_at),
// because a unique constraint must contain the partition key.
//
// Up creates partitions for today and the next [InitialDays] days, a default partition, and a function
// named after the table:
//
//	SELECT outbox_create_partitions(14);  -- creates missing partitions for today and the next 14 days
//
// `outbox-cdc prune` calls the function. Otherwise call it once a day as the owner of the table, for example
// with pg_cron. It returns the names of the new partitions. You may call it repeatedly and concurrently. It
// does not block writers, because it creates a partition as a separate table and then attaches it.
//
// If nobody calls the function, writes still succeed: rows of a day without a partition go to the default
// partition. The function then skips such a day with a warning, because moving a row would publish it
// again. Delete these rows like those of an unpartitioned table.
//
// The publication of a partitioned table needs WITH (publish_via_partition_root = true), so that the stream
// contains the name and the columns of the table instead of those of its partitions.
//
// # Inbox
//
// Package inbox uses two tables. processed_events has the events that a consumer has processed.
// inbox_events has the events that a consumer has received and not processed yet. One pair serves any
// number of consumers.
//
// With [Config].Partitioned processed_events is range-partitioned by event_id. The leading bits of a UUIDv7
// are its time, so a partition has the events of one UTC day. Almost all other UUIDs are in the default
// partition. The function is processed_events_create_partitions.
package migrations
