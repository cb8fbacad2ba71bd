// Package outbox writes events in the transaction of the change that they report.
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, id)
//	...
//	err = outbox.Write(ctx, tx, outbox.Event{
//		AggregateType: "order",     // topic outbox.event.order
//		AggregateID:   id,          // key
//		Type:          "OrderPaid", // header eventType
//		Payload:       OrderPaid{Cents: 4200},
//	})
//	...
//	err = tx.Commit(ctx)
//
// The event is published if and only if tx commits. The event is a row in a table. When the
// transaction has committed, the relay finds the row in the write-ahead log (WAL) and sends it to
// Kafka. The service itself does not connect to Kafka and has nothing to retry or to undo.
//
// Create the table with `outbox-cdc migrate up`.
//
// # Which function to use
//
//   - [Write] takes a pgx.Tx.
//   - [WriteSQL] takes a *sql.Tx, which sqlx, GORM, ent and bun provide.
//   - [WriteMessage] and [WriteMessageSQL] need no table: they write the events only to the WAL.
//
// No function takes a pool or a connection, so you cannot write an event outside a transaction. For a
// table of your own, another size limit or trace headers create a [Writer].
//
// # Order
//
// Records of one aggregate arrive in Kafka in the order in which their transactions committed, and in
// the order of the calls within a transaction. This is the order of the changes only if transactions
// that change the same aggregate wait for each other. So lock the row of the aggregate before you
// write the event: an UPDATE does, and so does SELECT ... FOR UPDATE. Events of different aggregates
// are not ordered.
//
// # Event ids
//
// Every event has an ID, and its record has the same ID whenever the relay sends it. If ID is zero, the
// package generates a UUIDv7. To know the ID, set it:
//
//	id, err := uuid.NewV7()
//	...
//	err = outbox.Write(ctx, tx, outbox.Event{ID: id, ...})
//
// Use version 7. Its values grow with time, so inserts go to one end of the primary key's index.
//
// # Errors
//
// A call checks all events before it sends anything. An [*EventError] names the event and the field. In
// that case nothing is written, and the transaction is still usable. An event that passes can be stored
// and delivered, if the topics accept records of Config.MaxBytes. After an error of the server the
// transaction is aborted, as after every failed statement.
//
// # Consumers
//
// The relay delivers a record at least once. After a crash it can send some records again, with the
// same header id, in the same order. A consumer that must not process an event twice records the ids of
// processed events in the transaction of their effects. Package inbox, beside this one, does that.
//
// # Deleting rows
//
// The relay reads the WAL and never the table. So you may delete rows at any time, even in the
// transaction that writes them. But you can only send rows again that are still in the table.
package outbox
