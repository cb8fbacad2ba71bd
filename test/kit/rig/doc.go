// Package rig runs the built relay between a database and a Kafka, writes events and checks
// what comes out.
//
//	r := rig.New(t)
//	process := r.Run(t)                  // the relay streams
//	r.Load.Run(t.Context(), t, 5000)     // events are committed, others rolled back
//	r.Arrived(t, 30*time.Second)
//	process.Terminate(t)
//	r.Settle(t, 0)
//
// [Rig.Settle] always asserts the same: every committed event is there, none of a rolled-back
// transaction is, the events of a key come in commit order, and every byte is what was
// written. See package delivery for how that is known, and package soak for a test that also
// judges every position that is confirmed.
//
// [Main] is the TestMain of a package that uses a rig.
package rig
