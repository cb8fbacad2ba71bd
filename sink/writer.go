package sink

import (
	"context"
	"time"
)

// A Writer writes a sequence of records to a Sink. One goroutine calls Send and CloseSend, and
// another one calls Run. Flush may be called from any goroutine. A Writer is used once.
type Writer interface {
	// Send adds r to the records to write. It copies r, so the caller may change r afterwards, and
	// also the memory of the names of headers, which may be in a buffer. Send blocks while the
	// window is full. If ctx ends first, Send returns its cause and has not accepted r. It does not
	// retain ctx.
	//
	// A nil error does not mean that r is delivered: Run reports the outcome to done. After the
	// Writer has failed, Send returns the error of Run.
	Send(ctx context.Context, r *Record) error

	// Flush sends the buffered records without waiting for their outcome. A Writer has no timer:
	// without Flush it may wait for more records before it sends one, and does not notice that the
	// fence has opened or, after CloseSend, that it has closed. Flush may be called at any time,
	// even after Run has returned.
	Flush()

	// CloseSend says that no more records follow. Run then returns when every accepted record has
	// an outcome or, while the fence is closed, when every sent request has a response. Send must
	// not be called after CloseSend.
	CloseSend()

	// Run writes the records of Send. It blocks until one of these is true, and returns:
	//
	//   - CloseSend was called and every record has an outcome: nil.
	//   - CloseSend was called, the fence is closed, and every sent request has a response: an
	//     *UndeliveredError whose cause is the error of the fence.
	//   - A record was rejected and has no substitute: its *RecordError, after all records before
	//     it are delivered. Of the records after it, only those are written that were already
	//     sent to other partitions. If ctx ends or the fence closes meanwhile, records before it
	//     may have no outcome.
	//   - After a response of the broker, writing is not possible any more: an error that wraps
	//     ErrSuperseded or ErrFatal. Run first waits for outstanding
	//     responses and reports their outcomes.
	//   - ctx ended: its cause, in an *UndeliveredError if records have no outcome.
	//
	// When Run returns, its connections are closed and its goroutines have ended.
	//
	// Run calls done with outcomes: the sequences of acknowledged records with a nil error, each
	// exactly once, and the sequence of each record that it will not write with a *RecordError.
	// seqs is valid during the call. Calls do not overlap, and none follows after Run has
	// returned. done must not block, because a connection waits for it.
	Run(ctx context.Context, done func(seqs []uint64, err error)) error
}

// A WriterConfig configures a Writer. Every field may be zero. While Run runs, the Writer may call
// the functions from any goroutine. They must not block and must not call the Writer.
type WriterConfig struct {
	// Fence is called before the Writer completes a request that carries records. While it returns
	// an error, the fence is closed: the Writer completes no request, and records wait. After the
	// fence has opened again, call Flush. Nil: the fence is always open.
	Fence func() error

	// Owner is the owner of a position store of the Sink, and no other Writer may have it. Then the broker rejects the
	// records of Writers with earlier owners, wherever this one has written. Nil, or of a broker that does not know
	// owners: the broker rejects no other Writer because of this one.
	Owner Owner

	// EventHeaders are the names of the headers that say which event a record is of, such as its id, and RowHeaders of those with
	// the place of its row in the stream. A contested record of a streamed row is stored if the destination has a record of an
	// earlier Writer with the same ones, and the same key and value. Without RowHeaders, it also has the same timestamp, because
	// nothing makes an id unique. That of a copied row is stored if the event headers, of which it must have one, key and value
	// are the same.
	EventHeaders []string
	RowHeaders   []string

	// ContestedSince is from when on earlier Writers may have stored contested records of streamed rows, or a later time for
	// those with an earlier timestamp. CopiedSince is the same for rows that are copied. Zero: unknown.
	ContestedSince time.Time
	CopiedSince    time.Time

	// Substitute is called for each record that the broker rejects. Nil: no record has a
	// substitute.
	Substitute Substitute

	// Divert returns the record to write in place of r, or nil if r is written as it is. The Writer asks
	// for each record at Send and, after Substitute was called, again for each later record of the same
	// destination that it has not sent yet, in the order of Send. So a substitute can take later records
	// with it: none of them overtakes it. Divert may change r and return it, as Substitute may; it must
	// not divert its own results. Nil: no record is diverted.
	Divert func(r *Record) *Record

	// GiveUp is asked, each time the broker says that a destination does not exist or may not be
	// written, whether the records that wait for it are to be rejected. It is not asked about a
	// destination that was writable since Open. Nil: records wait until it is there.
	GiveUp func(Missing) bool

	// MemoryChanged is called by NewWriter, and whenever the memory changes that the Writer may use for
	// unacknowledged records, and needs for each destination; bytes is its maximum. It must not block, and
	// must not call the Writer. Calls do not overlap. Nil: nobody follows it.
	MemoryChanged func(bytes int)

	// Delivered is called for acknowledged records, before done. It may return an example, such as
	// a trace id, which is passed to Answered. Calls may overlap.
	Delivered func(d Delivery) (example string)

	// Answered is called for each request with the time from sending it to its response, and with
	// the first example that Delivered has returned for its records. Calls may overlap.
	Answered func(took time.Duration, example string)
}

// A Missing is a destination that does not exist or may not be written, for which records wait.
type Missing struct {
	Destination string
	Since       time.Time // when the broker first said so
	WindowShare float64   // part of the window that is taken by records for missing destinations; 1 is all of it
}

// A Substitute returns the record to write in place of r, which the broker has rejected, or nil if
// there is none. It may change r and return it; the bytes of r are valid during the call only. The
// result always gets the sequence of r. At its destination it is ordered like a record that is sent
// now. If the broker rejects the substitute, the Writer calls Substitute for it too. Calls do not
// overlap.
type Substitute func(r *Record, rejected *RecordError) *Record

// A Delivery is a sequence of records that the broker has stored one after the other.
type Delivery struct {
	Topic     string
	Partition int32
	Offset    int64    // of the first record; negative if the response does not say
	Broker    string   // host:port of the server that responded
	Seqs      []uint64 // valid during the call
}
