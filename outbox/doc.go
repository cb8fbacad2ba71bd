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
//		Payload:       payload,
//	})
//	...
//	err = tx.Commit(ctx)
//
// The event is published if and only if tx commits. There is no second system to write to, nothing
// to retry and nothing to undo: the event is a row like any other until the relay finds it,
// committed, in the write-ahead log and sends it to Kafka.
//
// # Order
//
// Records of one aggregate reach Kafka in the order in which their transactions committed, and in
// the order of Write within a transaction. That is the order in which things happened only if
// transactions that touch the same aggregate wait for each other, so lock its row before writing:
// an UPDATE of it or SELECT ... FOR UPDATE does. Events of different aggregates are not ordered.
//
// # Identity
//
// Every event has an ID and keeps it through every retry. Write makes one for events that have
// none; a caller who wants to know it sets it:
//
//	id, err := uuid.NewV7()
//	...
//	err = outbox.Write(ctx, tx, outbox.Event{ID: id, ...})
//
// Use version 7: those grow with time, so the primary key's index grows at one end only.
//
// # Consumers
//
// A record is delivered at least once: after a crash of the relay a few may come a second time,
// with the same header id and after their first appearance. A consumer whose effect must happen
// once remembers the ids it has handled, in the transaction of that effect.
//
// # Table
//
// The table is the one that `outbox-cdc migrate up` creates, and prints with --print. For one of
// your own, make a [Writer]. The relay reads rows from the log only, so they may be deleted at any
// time, by the writing transaction even; but only what is still in the table can be sent again.
package outbox
