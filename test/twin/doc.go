// Package twin has no code of its own: its test runs the whole relay against servers that
// exist in memory only, in virtual time, with everything drawn from a seed.
//
// The relay is the real one, a [relay.Relay] with its replication stream, decoder,
// router, tracker, position record, watcher, producer and retries. Around it are
//
//   - a network of connections that take time, break after any byte, or carry nothing for a
//     while;
//   - a Postgres with a log, a slot with a position in memory and an older one on disk, and
//     walsenders that ask for replies, time out, wait for their receiver when the server is
//     stopped, or vanish when it crashes;
//   - a Kafka of several brokers that move leaders, refuse, answer an error after having
//     stored, do not answer, answer late, store what a connection sent that is long closed, or
//     forget a producer;
//   - an operator who starts the relay again after a SIGTERM, after a failure and after the
//     process was killed, or has the next one wait for the slot by then.
//
// Everything that happens is told to a checker at the moment it happens: a status update is
// judged by what the brokers hold when it arrives.
//
//	go test ./test/twin                          a hundred seeds
//	OUTBOX_TEST_SEEDS=5000 go test ./test/twin   more
//	OUTBOX_TEST_SEED=17 go test ./test/twin -v   one, with its history
//
// A seed fixes what is committed, what goes wrong and at which moment or byte. It does not fix
// the relay's own back-off, nor in which order goroutines run that are ready at the same
// virtual instant: a history is the same up to the first of these, and a failure that lies
// behind it may take a few runs of its seed to come again.
package twin
