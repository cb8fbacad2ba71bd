package sink

import (
	"context"
	"time"
)

// A Writer is one stream of records into a Sink. Send and CloseSend belong to one goroutine and
// Run to another; Flush may be called from any. A Writer is used once.
type Writer interface {
	// Send hands r over and returns when its bytes have been copied: r may be changed and used
	// again then. It blocks while the window is full, until ctx ends; then it returns ctx's
	// cause, and r was not accepted. It does not retain ctx.
	//
	// A nil error says nothing about delivery: the outcome goes to Run's done. Once the Writer
	// has failed, Send accepts nothing more and returns that failure.
	Send(ctx context.Context, r *Record) error

	// Flush sends the buffered records and does not wait for their outcome. A Writer has no timer.
	// Without Flush it may keep a record until it has more, and does not notice that the fence has
	// opened or, after CloseSend, that it has closed. Flush may be called at any time, even after
	// Run has returned.
	Flush()

	// CloseSend says that no more records follow: Run returns when every accepted record has an
	// outcome or, while the fence is closed, when every request on the wire has one. Send must not
	// be called afterwards.
	CloseSend()

	// Run writes what Send hands over, and blocks until one of these:
	//
	//   - CloseSend was called and every record has an outcome: nil.
	//   - CloseSend was called, the fence is closed, and no request is on the wire: an
	//     *UndeliveredError whose cause is the error of the fence.
	//   - A record was rejected and has no substitute: its *RecordError, after everything sent
	//     before it has been delivered. Nothing that was sent after it is written, except what
	//     was already on the wire for other partitions.
	//   - The broker's response makes further writes pointless: an error that wraps
	//     ErrSuperseded, ErrIdentityUsed, ErrFenced or ErrFatal. Run writes nothing more, but
	//     first waits for outstanding responses and reports them.
	//   - ctx ended: its cause, in an *UndeliveredError if records have no outcome.
	//
	// When it returns, its connections are closed and no goroutine of it is left.
	//
	// done reports outcomes: acknowledged sequences with a nil error, each exactly once; and
	// once for each record that will not be written, its sequence with a *RecordError. seqs is
	// valid during the call. done is called from one goroutine at a time, never after Run has
	// returned, and must not block: a connection waits for it.
	Run(ctx context.Context, done func(seqs []uint64, err error)) error
}

// A WriterConfig is what a Writer asks and tells while it runs. Every field may be zero. Its
// functions may be called from any goroutine while Run runs, must not block, and must not call
// the Writer.
type WriterConfig struct {
	// Fence is called before the Writer completes a request that carries records. While it returns
	// an error, the fence is closed: the Writer completes no request, and records wait. After the
	// fence has opened again, call Flush. Nil: the fence is always open.
	Fence func() error

	// Identity is how the broker tells Writers apart. It comes from [PositionStore.NextIdentity],
	// and no other Writer has it. Nil: the Writer gets a new identity that ranks above no other,
	// so the broker rejects no other Writer because of this one.
	Identity []byte

	// Substitute is asked for a record in place of each that the broker rejects. Nil: there is
	// never one.
	Substitute Substitute

	// GiveUp is asked, each time the broker says that a destination does not exist or may not be
	// written, whether the records that wait for it are to be rejected. It is not asked about a
	// destination that was writable since Open. Nil: records wait until it is there.
	GiveUp func(Missing) bool

	// Delivered is told of records that the broker has acknowledged, before Run's done is. What
	// it returns, if it is not empty, is an example for Answered. Several calls may run at a
	// time.
	Delivered func(d Delivery) (example string)

	// Answered is told how long each request took from its writing to its answer, with the first
	// example that Delivered has given for its records. Several calls may run at a time.
	Answered func(took time.Duration, example string)
}

// A Missing is a destination that does not exist or may not be written, for which records wait.
type Missing struct {
	Destination string
	Since       time.Time // when the broker first said so
	WindowShare float64   // part of the window that is taken by records for missing destinations; 1 is all of it
}

// A Substitute returns the record to write in place of r, which the broker has rejected, or nil
// if there is none. It may change r, whose bytes are valid during the call only, and return it.
// The result gets the sequence of r, whatever the Substitute says; its place in the order of its
// destination is that of a record sent now. A Substitute that is rejected is asked about like any
// other record. One call runs at a time.
type Substitute func(r *Record, rejected *RecordError) *Record

// A Delivery is a run of records that the broker has stored one after the other.
type Delivery struct {
	Topic     string
	Partition int32
	Offset    int64    // of the first record; the others follow it. Negative if the answer does not say
	Broker    string   // which server answered, as host:port
	Seqs      []uint64 // valid during the call
}
