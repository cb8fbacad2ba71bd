// Package twin has no code of its own: its test runs the whole relay against servers that
// exist in memory only, in virtual time, with everything drawn from a seed.
//
// The relay is the real one, a [relay.Relay] with its replication stream, decoder,
// router, tracker, position record, watcher, producer and retries. Around it are
//
//   - a network of connections that take time, break after any byte, or carry nothing for a
//     while, in one direction or both. A relay that hears of nobody and is heard by nobody is
//     also what the servers see of a process that is stopped and goes on;
//   - a Postgres with a log, a slot with a position in memory and an older one on disk, and
//     walsenders that ask for replies, time out, wait for their receiver when the server is
//     stopped, vanish when it crashes, or let go of the slot without a word to their receiver;
//   - a Kafka of several brokers that move leaders, refuse, answer an error after having
//     stored, do not answer, answer late, store what a connection sent that is long closed,
//     name leaders of the past, or forget a producer; each partition keeps its own epochs;
//   - one relay or two side by side, each with an operator who starts it again after a SIGTERM,
//     after a failure and after the process was killed, or has the next one wait for the slot
//     by then.
//
// A seed has a time of trouble, then one of peace in which everything has to arrive, and then a
// scene: one thing that goes wrong alone, where it can be said exactly what must happen.
//
// The history judges everything at the moment it happens: a status update by what the brokers
// hold when it arrives. Of the protocol between two relays (package relay, takeover.go) it checks:
//
//   - no two processes store under one epoch ([history.judgeClaim]);
//   - rows are stored under a claim that was stored before, and after a look at the slot (the same);
//   - in each partition the claims never fall, so no old record lies behind a newer relay's (the same);
//   - the rows of a writer rise in each partition, repeats included ([history.judgeOrder]), and
//     begin where nothing is left out (package delivery);
//   - who goes on under its claim is the newest to have claimed ([history.streaming]);
//   - every status update is covered by the record ([history.told]);
//   - what a record says is stored is ([history.recorded], [history.judgeOpen]), and so is in the
//     end what a relay has skipped ([world.arrive]);
//   - a relay that has lost the slot sends nothing new after wal_sender_timeout ([history.wrote]);
//   - while Postgres is well the slot is not free for long ([history.judgeFree]), and rows flow
//     again soon after Kafka is back (the scenes).
//
// Who checks the checker: TestMutations puts mistakes between the relay and its servers, and
// TestPlants into the source of the relay.
//
//	go test ./test/twin                                a hundred seeds
//	OUTBOX_TEST_SEEDS=5000 go test ./test/twin         more
//	OUTBOX_TEST_SEED=17 go test ./test/twin -v         one, with its history
//	OUTBOX_TEST_FULL=1 go test -run Plants ./test/twin the planted mistakes
//
// A seed fixes what is committed, what goes wrong and at which moment or byte. It does not fix
// the relay's own back-off, nor in which order goroutines run that are ready at the same
// virtual instant: a history is the same up to the first of these, and a failure that lies
// behind it may take a few runs of its seed to come again.
package twin
