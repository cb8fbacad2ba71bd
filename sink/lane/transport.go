package lane

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Transport writes requests to a broker. The Writer calls Publish from one goroutine.
type Transport interface {
	// Publish starts requests, which belong to different lanes. It may block while the connection to the broker takes no
	// more bytes, and returns when ctx ends. It need not wait for responses. It must call Done of each request
	// exactly once, during the call or later, from any goroutine. When ctx ends, it calls Done of all requests soon, with
	// the outcomes that it knows. ctx is the same in every call.
	Publish(ctx context.Context, requests []*Request)

	// Close ends the connections of the Transport. Done of every request has been called.
	Close() error
}

// An Explainer is a Transport that may know why the broker does not respond to requests.
type Explainer interface {
	// Silence returns the cause, or nil. It must not block, nor call Done.
	Silence() error
}

// A Request is the next records of one lane, in order.
type Request struct {
	// Records has at least one record, and at most Options.RequestRecords. They are valid until Done is called, and must
	// not be changed. The Transport may use their bytes in its own messages until then.
	Records []*sink.Record

	// Resent: an earlier request had the first record, and the broker may have stored it.
	Resent bool

	// Fence returns an error while nothing may be written. The Writer calls it immediately before Publish. A Transport
	// that writes the request later than that, for example when it has established a connection, must call it again
	// immediately before, and pass an error, or one that wraps it, to Done instead of writing.
	Fence func() error

	// Done reports the outcome: the broker has stored the first records, as many as stored says. err is nil if these are
	// all. Otherwise it is about the record after them:
	//
	//   - a *[sink.RecordError]: the broker rejects it, and has not stored it or any later one;
	//   - an error that wraps [ErrConnection]: the broker cannot be reached; all lanes wait for the back-off;
	//   - an error that wraps [ErrStale]: as any other error, but the first retry of the lane has no back-off;
	//   - an error that wraps [sink.ErrSuperseded] or [sink.ErrFatal]: it ends the Writer;
	//   - an error that wraps [sink.ErrMissing] or [sink.ErrAccess]: its destination does not exist or may not be written,
	//     and the broker has stored nothing more of the request; the destination waits, see [sink.WriterConfig].GiveUp.
	//     [sink.Stat] has the advice of a [sink.Advised];
	//   - any other error: the request is sent again after a back-off of the lane, and after the delay of a [Delayed].
	//
	// If the error does not say otherwise, the broker may have stored the record and later ones of the request. Done does
	// not block. The Request must not be used after Done was called.
	Done func(stored int, err error)
}

// ErrConnection is the error of a request without a response, because the connection is lost or cannot be established.
var ErrConnection = errors.New("no connection to the broker")

// ErrStale is the error of a request that met a connection that the server was closing, as servers do with connections that
// were idle for long. It is no failure: unless the retry fails too, [sink.Stat] has only the retry.
var ErrStale = errors.New("the server was closing the connection")

// A Delayed error says how long the broker asks to wait before the request is sent again.
type Delayed interface {
	error
	RetryAfter() time.Duration
}

// Options configure the Writers of a Sink.
type Options struct {
	// Broker is host:port of the server, or of several servers, for messages.
	Broker string

	// ReachAdvice is how to fix that the broker cannot be reached, for the error of [Base.Retry], and for a stall without advice of
	// its own in [sink.Stat] and the log.
	ReachAdvice string

	// Illegal returns why no record can be written to a destination of that name, as the predicate of a sentence, or "". Its
	// records are rejected. It must not block. Nil: any name will do.
	Illegal func(destination string) string

	// WindowRecords and WindowBytes limit the records that Send has accepted and that have no outcome, and their memory.
	// 0: the default.
	WindowRecords, WindowBytes int

	// PerDestination makes a destination one lane. Otherwise each key of a destination is a lane, and records without a
	// key have no order.
	PerDestination bool

	// RequestRecords is the maximum number of records of a Request, 1 by default.
	RequestRecords int

	// RequestBytes is the maximum size of the keys, values and headers of a Request with several records. 0: no limit.
	RequestBytes int

	// Outstanding is the maximum number of requests without an outcome. 0: only the window limits them.
	Outstanding int

	// Prepare checks a record before it is accepted into a request, for example its size, and returns the reason for
	// which it cannot be written, a *[sink.RecordError]. It must not block. Nil: every record can be.
	//
	// Of a RecordError, here and in Done, the Writer sets Seq, Topic, Partition, Key and Headers, and Size if it is 0.
	Prepare func(r *sink.Record) error
}

// Defaults of Options.
const (
	DefaultWindowRecords = 50_000
	DefaultWindowBytes   = 4 << 20
)

func (o Options) withDefaults() Options {
	o.WindowRecords = cmp.Or(o.WindowRecords, DefaultWindowRecords)
	o.WindowBytes = cmp.Or(o.WindowBytes, DefaultWindowBytes)
	o.RequestRecords = cmp.Or(o.RequestRecords, 1)
	return o
}

func (o Options) illegal(destination string) string {
	if o.Illegal == nil {
		return ""
	}
	return o.Illegal(destination)
}
