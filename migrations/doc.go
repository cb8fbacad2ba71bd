// Package migrations creates and upgrades the outbox table and the tables of an inbox, and removes
// them again.
//
// The schema is a contract between the services that write events and the relay that reads them
// from the write-ahead log; [Print] shows it as plain SQL. [Up], [Down] and [Status] apply it
// through goose, with a history table of their own (outbox_cdc_migrations, in the schema of the
// tables) that is created with the first migration and dropped with the last, so an
// application's own use of goose is not touched. One history serves every outbox table of its
// schema and the inbox beside them.
//
// Publication and slot are not made here: they belong to the relay and must be made after the
// table, publication first.
//
// # The partitioned variant
//
// With [Config.Partitioned] the table is range-partitioned by the UTC day of created_at, so that
// clearing away old events is DROP TABLE of a partition: no dead rows and no vacuum. Its primary
// key is (id, created_at), because a unique constraint has to contain the partition key.
//
// Up creates partitions for today and the [InitialDays] days after it, a default partition, and a
// function named after the table:
//
//	SELECT outbox_create_partitions(14);  -- today and the next 14 days, where missing
//
// outbox-cdc prune calls it; else call it once a day, from pg_cron or any scheduler, as the owner of
// the table. It may be repeated and run concurrently, holds up no writer (a partition is made beside
// the table and then attached), and returns the names of the partitions it made. If nobody calls it,
// writes still succeed: the rows of an uncovered day go to the default partition. The function then
// leaves those days alone, with a warning, because moving a row would publish it a second time; delete
// them like the rows of an unpartitioned table.
//
// The publication of a partitioned table must be WITH (publish_via_partition_root = true), so that
// the stream carries the name and columns of the table and not those of its partitions.
//
// # The inbox
//
// The tables of package inbox: processed_events remembers what a consumer has done, inbox_events
// holds what it has received and could not do yet. One pair serves any number of consumers. With
// [Config.Partitioned] processed_events is range-partitioned by event_id, whose leading bits are the
// time for a UUIDv7: a partition holds the events that were made on one UTC day. Ids of other
// versions are in the default partition, nearly all of them. The function is called
// processed_events_create_partitions.
package migrations
