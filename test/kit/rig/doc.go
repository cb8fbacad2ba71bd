// Package rig runs the relay's binary between a database and a Kafka cluster, writes events to the
// outbox and checks the records in the topic.
//
//	r := rig.New(t)
//	process := r.Run(t)                  // the relay streams
//	r.Load.Run(t.Context(), t, 5000)     // events are committed, others rolled back
//	r.Arrived(t, 30*time.Second)
//	process.Terminate(t)
//	r.Settle(t, 0)
//
// [Rig.Settle] waits for all committed events and checks that every committed event is in the topic,
// that no event of a rolled-back transaction is, that the events of a key are in commit order, and
// that every byte is as written. Package delivery documents the checks. Package soak has a test that
// also checks every confirmed position.
//
// [Main] is the TestMain of packages that use a rig.
package rig
