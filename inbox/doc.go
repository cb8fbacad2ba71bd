// Package inbox processes each event once.
//
// A record of Kafka is delivered at least once: after a crash, a rebalance or a replay it comes
// again. A consumer whose effects are in Postgres makes that harmless by noting, in the transaction
// of the effects, that it has processed the event:
//
//	fresh, err := inbox.Claim(ctx, tx, "notifications", eventID)
//	if err != nil || !fresh {
//		return err
//	}
//	... // the effects, in tx
//
// [Claim] is all of it for those who have a loop of their own. A [Processor] is that loop's inside:
//
//	p, err := inbox.New(pool, inbox.Config{
//		Consumer: "notifications",
//		Handlers: map[string]inbox.Handler{"OrderPlaced": welcome, "OrderPaid": thank},
//	})
//	...
//	err = inboxsarama.Run(ctx, group, []string{"outbox.event.order"}, p, inboxsarama.Config{}) // or inboxfranz
//
// It claims and runs the handler in one transaction, contains panics, tries again what has failed,
// and parks what never works until a person has looked at it; and all the while events of one key
// keep their order. `outbox-cdc migrate up --only inbox` makes the tables; `outbox-cdc inbox`
// lists, retries and discards what is parked.
//
// # What is promised
//
//   - Once: the effects that a handler makes in its transaction are committed once for each event
//     id, however often and wherever the record is delivered, as long as the claim has not been
//     pruned ([Prune]). What a handler does elsewhere, such as sending a mail, may happen again
//     when its attempt fails afterwards.
//   - Nothing lost: an offset is committed after a transaction in which the record was handled, or
//     was put into the table inbox_events.
//   - Order: the effects of the events of one key (and topic) are committed in the order of their
//     first appearances in the partition, across retries, rebalances and crashes. An event of a key
//     that waits, or is parked, has all later ones of the key wait behind it; other keys go on.
//   - Bounded: in memory is one event for each call of Handle, and Config.Workers ones that are
//     retried. What waits does so in inbox_events, and beyond Config.MaxWaiting in Kafka.
//
// # How it works
//
// [Processor.Handle] takes an event straight from Kafka: one transaction, begun, claimed, handled
// and committed; that is one round trip more than a bare handler has. Only an event that fails, or
// that comes while its key is waiting, is written to inbox_events, and then its offset may be
// committed, because the table keeps it. [Processor.Run] tries those again. So the cost of
// durability is paid by what fails, a failing event holds up neither its partition nor the process,
// and what waits is not lost with the process and can be looked at with SQL.
//
// In inbox_events events of one topic and key make a lane, in the order in which they came. The
// first one, and only that, has a time when it is due, or is parked; whoever takes it out hands
// that on to the next. Both is done under an advisory lock of the lane.
//
// Why that keeps order. A processor handles a partition's records one after the other, from the
// committed offset or before. So (1) when one comes to an event, every earlier one of the partition
// is either claimed or in inbox_events, committed, whichever process has done that. The claiming
// statement claims an event only if its snapshot, taken after (1), has nothing in its lane: then
// all the earlier ones are claimed. Else the event goes into the lane, behind them. (2) Of a lane
// only the first event is tried, and it leaves in the transaction that claims it. Therefore an
// event is claimed after all earlier ones of its key are, and a claim commits with the effects. A
// process that has lost its partition and has not noticed yet can only repeat events for which (1)
// holds; whatever it tries ends at a claim that another has made, or makes the claim that the
// others then find.
//
// Why that is once. A claim is a row of a unique index: the second transaction that inserts it
// waits for the end of the first. That holds whoever it is: two consumers with the same record, an
// attempt that lost its lease and the one that took it over. Leases keep processors from doing work
// for nothing, they are not what effects are counted by.
//
// Leases. An event that is retried belongs to a processor until leased_until, by the database's
// clock. The processor renews it while the attempt goes on, so a slow attempt is left alone, and
// after a crash others take the event over once the lease has passed. What is handled straight from
// Kafka needs none: there the consumer group says whose partition it is.
//
// A rebalance in the middle. The adapters end the context of a revoked partition. The handler that
// runs has Config.Grace to finish; if it does, its offset is committed with the others, and if it
// does not, its transaction is rolled back. The new owner begins at the committed offset, and waits
// at the claim of an event that the old one is still about.
//
// A host that vanishes in the middle of a transaction keeps its claim until the server notices; the
// transactions therefore set idle_in_transaction_session_timeout for themselves, a little above
// Timeout and Grace.
//
// # What it needs
//
// Topics whose partitions keep the order of a key, which those of the relay do, and records with
// the headers id and eventType. One connection for each partition that is handled at the moment,
// and Workers + 2: with fewer, such as the four that a pgxpool has by default, attempts wait for
// each other, and leases may pass meanwhile. A pooler by transaction does no harm.
package inbox
