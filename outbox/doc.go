// Package outbox writes events in the transaction of the change they report.
//
//	tx, err := pool.Begin(ctx)
//	...
//	_, err = tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, id)
//	...
//	err = outbox.Write(ctx, tx, outbox.Event{
//		AggregateType: "order",
//		AggregateID:   id,
//		Type:          "OrderPaid",
//		Payload:       OrderPaid{Cents: 4200},
//	})
//	...
//	err = tx.Commit(ctx)
//
// The event is published if and only if tx commits. There is no second system to write to, nothing
// to retry and nothing to undo: the event is a row like any other until the relay finds it,
// committed, in the write-ahead log and sends it to Kafka.
//
// # Which function
//
// [Write] takes a pgx.Tx and [WriteSQL] a *sql.Tx, which sqlx, GORM, ent and bun hand out.
// [Emit] and [EmitSQL] need no table: their events are in the log only. None takes a pool or a
// connection, so an event cannot be written beside its transaction. The functions use the table
// that `outbox-cdc migrate up` creates, and prints with --print; for one of your own, a limit of
// your own or the headers of your tracing make a [Writer].
//
// # Order
//
// Records of one aggregate reach Kafka in the order in which their transactions committed, and in
// the order of the calls within a transaction. That is the order in which things happened only if
// transactions that touch the same aggregate wait for each other, so lock its row before writing:
// an UPDATE of it or SELECT ... FOR UPDATE does. Events of different aggregates are not ordered.
//
// # Identity
//
// Every event has an ID and keeps it through every retry. One is made for events that have none; a
// caller who wants to know it sets it:
//
//	id, err := uuid.NewV7()
//	...
//	err = outbox.Write(ctx, tx, outbox.Event{ID: id, ...})
//
// Use version 7: those grow with time, so the primary key's index grows at one end only.
//
// # Errors
//
// An event is checked before anything is sent: an [*EventError] names the event and the field, and
// leaves the transaction as it was. What passes can be stored and delivered, as far as that can be
// known here: the topics must take records of Config.MaxBytes. All events of a call are written, or
// none; an error of the server aborts the transaction, as errors of statements do.
//
// # Consumers
//
// A record is delivered at least once: after a crash of the relay a few may come a second time,
// with the same header id and after their first appearance. A consumer whose effect must happen
// once remembers the ids it has handled, in the transaction of that effect: package inbox, beside this
// one, does.
//
// # Deleting
//
// The relay reads rows from the log only, so they may be deleted at any time, by the writing
// transaction even; but only what is still in the table can be sent again.
package outbox
