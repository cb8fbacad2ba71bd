package jetstream

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The error classes of package sink with texts for NATS.
var (
	errAccess      = sink.NewError(sink.ErrAccess, "no access to NATS", accessAdvice)
	errDenied      = sink.NewError(sink.ErrAccess, "the user may not publish to the subject", publishAdvice)
	errClosed      = sink.NewError(sink.ErrAccess, "the stream is sealed", sealedAdvice)
	errNoJetStream = sink.NewError(sink.ErrAccess, "JetStream is not enabled", enableAdvice)
	errFatal       = sink.NewError(sink.ErrFatal, "cannot continue writing to NATS", "")
)

const (
	reachAdvice   = "Check sink.jetstream.servers."
	accessAdvice  = "Check sink.jetstream.tls and the credentials of sink.jetstream."
	publishAdvice = "Allow the user to publish to the subject, and to subscribe to _INBOX.> (sink.jetstream.inbox_prefix)."
	sealedAdvice  = "A sealed stream never accepts messages again. Create another one for the subject."
	enableAdvice  = "Start nats-server with -js or a jetstream block, and enable JetStream for the account of the user."
)

var (
	errTimeout = errors.New("no response from the stream in time")
	errNoAck   = errors.New("a response that is no acknowledgement; another program responds to the subject")
)

// adviseMissing returns an error for a subject that no stream has.
func adviseMissing(subject string) error {
	return sink.NewError(sink.ErrMissing, "no stream has the subject", fmt.Sprintf("Add the subject to a stream, in a cluster with --replicas 3:\n  nats stream add NAME --subjects %q --storage file --dupe-window 2m --defaults", subject))
}

// A codeError is an error of a server's response: code is its err_code.
type codeError struct {
	code int
	text string
}

func (e *codeError) Error() string { return fmt.Sprintf("%s (err_code %d)", e.text, e.code) }

const codeStoreFailed = 10077

// tooLargeForStore is the text of codeStoreFailed that is about the record. Its other texts are about limits of the stream,
// with the discard policy new, which make records wait until messages are consumed, removed or expire.
const tooLargeForStore = "message too large"

// A row is a code of the server, what it means, and its class: nil if the record was not stored and is sent again after a back-off,
// errTooLarge if the stream rejects the record and may accept a smaller one, or the error of a stream for which records wait until
// somebody changes it or a privilege.
type row struct {
	code  int
	class error
	text  string
}

var errTooLarge = errors.New("too large")

// codeTable is the only place that decides what an error code means. Any other code is that of a record which is sent again, and
// status shows why.
func codeTable() []row {
	return []row{
		{10002, nil, "the account has used up its JetStream resources"},
		{10008, nil, "JetStream is temporarily unavailable"},
		{10009, nil, "the server does not lead the cluster"},
		{10023, nil, "the server has too few resources for JetStream"},
		{10028, nil, "the server has too little memory for JetStream"},
		{10047, nil, "the server has too little storage for JetStream"},
		{codeStoreFailed, nil, "the stream is full, and its discard policy is new"},
		{10118, nil, "the stream is offline"},
		{10158, nil, "an earlier copy of the record is being stored"},
		{10167, nil, "the stream has too many requests waiting"},
		{10194, nil, "the stream is offline"},
		{10054, errTooLarge, "larger than max_msg_size of the stream"},
		{10097, errTooLarge, "its headers are larger than 64 KiB"},
		{10109, errClosed, "the stream is sealed"},
		{10076, errNoJetStream, "JetStream is not enabled on the server"},
		{10039, errNoJetStream, "JetStream is not enabled for the account"},
	}
}

// checkAck returns an error if a response does not say where the stream has stored the message.
func checkAck(ack *jetstream.PubAck) error {
	if ack.Sequence == 0 {
		return errNoAck
	}
	return nil
}

// outcomeOf returns the outcome of a record from the error with which it was published.
func outcomeOf(err error) error {
	switch api, ok := errors.AsType[*jetstream.APIError](err); {
	case ok:
		return errorOf(int(api.ErrorCode), api.Description)
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return errTimeout
	case errors.Is(err, jetstream.ErrInvalidJSAck):
		return errNoAck
	}
	return err
}

// errorOf returns the outcome of a record to which a server has responded with an error.
func errorOf(code int, description string) error {
	r := row{code, nil, description}
	for _, known := range codeTable() {
		if known.code == code {
			r = known
		}
	}
	switch {
	case code == codeStoreFailed && description == tooLargeForStore:
		r.class, r.text = errTooLarge, "larger than a file of the stream can be"
	case code == codeStoreFailed:
		r.text += ": " + description
	}
	err := &codeError{code, r.text}
	switch {
	case r.class == nil:
		return err
	case errors.Is(r.class, errTooLarge):
		return &sink.RecordError{TooLarge: true, Code: fmt.Sprint(code), Reason: err}
	}
	return r.class
}

// isAccess reports whether err of a connection says that the server rejects us, or that one side does not trust the
// other. Retrying does not help then.
func isAccess(err error) bool {
	for _, rejected := range []error{
		sink.ErrAccess, nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported,
	} {
		if errors.Is(err, rejected) {
			return true
		}
	}
	return sink.TLSReason(err, "server") != ""
}
