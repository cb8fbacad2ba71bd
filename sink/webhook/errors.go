package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

const (
	reachAdvice  = "Check sink.webhook.url and sink.webhook.origins, and that the receiver can be reached from here, or through the proxy of HTTPS_PROXY."
	accessAdvice = "Check the host in sink.webhook.url and sink.webhook.tls: ca_file for a receiver with a private CA, cert_file and key_file if it wants a client certificate."
)

// A statusError is a response that is not an acknowledgement.
type statusError struct {
	url  string
	code int
	meaning
}

// Error says what the response means. It contains nothing that the server has sent but the status code.
func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.url, statusText(e.code), e.detail)
}

// Unwrap returns the class of the error.
func (e *statusError) Unwrap() error {
	switch e.class {
	case missing:
		return sink.ErrMissing
	case denied:
		return sink.ErrAccess
	case accepted, retriable, rejected:
	}
	return nil
}

// Advice implements [sink.Advised].
func (e *statusError) Advice() string {
	switch {
	case e.code == 401 || e.code == 403:
		return "Check the files of sink.webhook.token_file, password_file and signing_secrets_file, which the relay reads again, or the rules of the receiver."
	case e.code == 407:
		return "Check the credentials in HTTPS_PROXY."
	case e.code/100 == 3:
		return "Set sink.webhook.url, or outbox.topic, to the URL that the receiver redirects to, and restart the relay."
	case e.class == missing || e.class == denied:
		return "Make the receiver accept POST at this URL; or correct sink.webhook.url or outbox.topic, and restart the relay."
	}
	return ""
}

// A pausedError is an error after which the receiver asks for a pause. It implements [lane.Delayed].
type pausedError struct {
	error

	pause time.Duration
}

// Error also says how long the pause is.
func (e *pausedError) Error() string {
	return fmt.Sprintf("%v; the receiver asks for a pause of %s", e.error, e.pause.Round(time.Second))
}

// RetryAfter returns the pause.
func (e *pausedError) RetryAfter() time.Duration { return e.pause }

// Unwrap returns the error without the pause.
func (e *pausedError) Unwrap() error { return e.error }

// refusedAdvice is for a receiver that the relay may not connect to.
const refusedAdvice = "If the receiver is in your own network, set sink.webhook.refuse_private_addresses: false and restart the relay; otherwise correct the name in the DNS."

// accessError returns the error of a receiver whose certificate does not verify, or that rejects ours.
func accessError(err error) error {
	return sink.Advise(fmt.Errorf("%w to the receiver: %w", errNoAccess, err), accessAdvice)
}

var errNoAccess = sink.NewError(sink.ErrAccess, "no access", "")

// A credentialError says that a secret of the relay could not be read, so nothing was sent.
type credentialError struct {
	what string
	err  error
}

func (e *credentialError) Error() string { return "read " + e.what + ": " + e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

// requestError returns the error for a request without a response. A connection that could not be made to the only server
// concerns all records. One that broke concerns only its record: the record may be why the receiver broke it.
func requestError(at *address, err error, single bool, timeout time.Duration) error {
	if refused, ok := errors.AsType[*privateError](err); ok {
		return sink.NewError(sink.ErrMissing, fmt.Sprintf("%s: %v", at.url, refused), refusedAdvice)
	}
	text := fmt.Errorf("%s: %w", at.url, explain(err, timeout))
	if _, ok := errors.AsType[*network.DialError](err); ok && single {
		return fmt.Errorf("%w: %w", lane.ErrConnection, text)
	}
	return text
}

// A textError is an error with another text. The text of the error of package http may contain what the server has sent.
type textError struct {
	text  string
	cause error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.cause }

// explain returns err with a text that contains nothing that the server has sent.
func explain(err error, timeout time.Duration) error {
	if reason := sink.TLSReason(err, "receiver"); reason != "" {
		return &textError{reason, err}
	}
	dialing := false
	if dial, ok := errors.AsType[*network.DialError](err); ok {
		dialing, err = true, dial.Err
	}
	text := "the connection broke, or the response is not HTTP"
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		text = fmt.Sprintf("no response within %s; the receiver may have processed the event", timeout)
		if dialing {
			text = "no connection in time"
		}
	case errors.Is(err, errUnprocessed):
		text = errUnprocessed.Error()
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed):
		text = "the receiver closed the connection without a response"
	default:
		if e, ok := errors.AsType[*credentialError](err); ok {
			return e
		}
		if e, ok := errors.AsType[*net.DNSError](err); ok {
			return &textError{"the host name is not resolved: " + e.Err, err}
		}
		if e, ok := errors.AsType[*net.OpError](err); ok {
			return &textError{e.Error(), err}
		}
		if dialing {
			return err
		}
	}
	return &textError{text, err}
}
