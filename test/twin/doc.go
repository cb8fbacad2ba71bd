// Package twin contains only tests. They run the whole relay against simulated servers in memory,
// in virtual time. A seed determines all random choices of the simulation.
//
// The relay is the real one: a [relay.Relay] with its replication stream, decoder, router,
// tracker, position record, watcher, producer and retries. The simulation consists of
//
//   - a network whose connections have latency, are lost after any byte, or transmit nothing for
//     a while in one or both directions. If nothing passes in both directions, the servers cannot
//     distinguish this from a relay whose process is paused and resumed;
//   - a Postgres with a WAL, and with a slot that has a position in memory and an older one on
//     disk. Its WAL senders request replies and time out. They wait for the relay in a fast
//     shutdown, disappear in a crash, or release the slot without an error to the relay;
//   - a Kafka with several brokers. They move leaders, reject records, return an error after they
//     have stored records, respond late or not at all, store a request after its connection has
//     been closed, name former leaders, and forget producers. Each partition has its own epochs;
//   - or, in TestTwinOverLane, a queue in place of Kafka: a broker that acknowledges each record on its own, as those of package
//     lane do. It handles requests in any order, stores all or a part of one, denies and lacks destinations for a while, and has most of
//     Kafka's faults. It has a position store, but recognizes no record that it has stored, and rejects no earlier owner's records;
//   - one or two relays, each with an operator. The operator restarts the relay after a SIGTERM, a
//     failure or a kill. Sometimes it starts the next relay before, which waits for the slot. In some
//     seeds the relay parks keys. Then another operator releases and discards them at random times. In
//     some, somebody drops the slot, and the relay refills the gap from the table. Then no key is discarded.
//
// For each seed, the test injects random faults. Then the faults end, and everything must arrive.
// At the end the test plays a scene: a single fault for which the correct behavior is known
// exactly.
//
// The history checks each event when it happens. It compares a status update, for example, with
// the records that the brokers have stored when the update arrives. Of the protocol between two
// relays (package relay, takeover.go) it checks that
//
//   - no two processes write records under the same epoch ([history.judgeClaim]);
//   - a relay writes rows only in an ownership whose first record a broker has already stored, and only after it
//     has read that it holds the slot (judgeClaim);
//   - the ownerships in a partition never decrease, so no record of an older relay follows one of a
//     newer relay (judgeClaim), also in the position topic ([history.claimed]);
//   - the rows of a writer are in order in each partition, including duplicates
//     ([history.judgeOrder]), and no row is missing before the first one (package delivery);
//   - only the relay with the newest ownership streams ([history.streaming]);
//   - every confirmed position is covered by the position record ([history.told]);
//   - a position record covers only rows that are stored ([history.recorded],
//     [history.judgeOpen]), and the rows that a relay skips are stored in the end ([world.arrive]);
//   - a row is stored once, but for the cases in a table ([allowances]);
//   - the rows of a parked key are in order in the dead-letter topic and after a release, none is
//     missing but a discarded one, and none is discarded that brokers accept (park_test.go);
//   - a refill sends all rows that the lost slot has not delivered before the relay confirms the new slot's position,
//     and repeats only rows that the newest recorded snapshot does not show as delivered (refill_test.go);
//   - over a queue, where a row may be stored again, no Writer sends a row again of which it has the acknowledgement
//     ([history.judgeResend]);
//   - a relay that has lost the slot sends nothing new after wal_sender_timeout ([history.wrote]);
//   - the slot is not free for long while Postgres is healthy ([history.judgeFree]), and rows
//     arrive soon after Kafka is available again (the scenes).
//
// Two tests check the checks. TestMutations injects bugs between the relay and its servers, and
// TestPlants into the source code of the relay and of package lane.
//
//	go test ./test/twin                                16 seeds, and 6 over a queue, always the same
//	OUTBOX_TEST_SEEDS=5000 go test ./test/twin         more seeds, and a third as many over a queue
//	OUTBOX_TEST_SEED=17 go test -run 'TestTwin$' -v ./test/twin
//	                                                   one seed, with its history
//	OUTBOX_TEST_FULL=1 go test -run 'Mutations|Plants' ./test/twin
//	                                                   the injected bugs
//
// A seed determines the committed transactions, the faults, and the moment or byte of each fault.
// It does not determine the relay's own backoff, nor the order of goroutines that become ready at
// the same virtual time. So two runs of a seed may differ, and a failure may need several runs of
// its seed to occur again.
package twin
