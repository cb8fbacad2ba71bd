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
// transaction is, first appearances of a key come in commit order, and every byte is what was
// written. See [Ledger] for how that is known, and package oracle for how it is known in the
// soak, which also judges every position that is confirmed.
//
// [Main] is the TestMain of a package that uses a rig.
package rig
