package rabbitmq

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const reachAdvice = "Start the broker, or correct sink.rabbitmq.servers, as the reason says."

// A class of response decides what happens to a message, a connection or a login that the broker has rejected.
type class int

const (
	retriable class = iota // the message is sent again, over a new channel or connection
	missing                // the destination does not exist: its messages wait
	denied                 // the user may not do it: at the first login an error, otherwise the messages wait
	rejected               // the broker never accepts the message
)

// A codeError is a reply code of AMQP with our text. The text of the broker is not used, because it may have parts of a
// message.
type codeError struct {
	code  int
	name  string
	class class
	text  string
}

func (e *codeError) Error() string { return fmt.Sprintf("%s (%d): %s", e.name, e.code, e.text) }

// codes returns the table of all codes that RabbitMQ sends.
func codes() []codeError {
	return []codeError{
		{amqp.ContentTooLarge, "CONTENT_TOO_LARGE", rejected, "the broker does not accept a message of this size"},
		{amqp.NoRoute, "NO_ROUTE", rejected, "the exchange routes the message to no queue"},
		{amqp.NoConsumers, "NO_CONSUMERS", rejected, "no consumer takes the message"},
		{amqp.ConnectionForced, "CONNECTION_FORCED", retriable, "an operator or a shutdown has closed the connection"},
		{amqp.InvalidPath, "INVALID_PATH", denied, "the virtual host does not exist"},
		{amqp.AccessRefused, "ACCESS_REFUSED", denied, "the user does not have the permission, or the exchange is internal"},
		{amqp.NotFound, "NOT_FOUND", missing, "the exchange or queue does not exist"},
		{amqp.ResourceLocked, "RESOURCE_LOCKED", retriable, "the queue is exclusive to another connection"},
		{amqp.PreconditionFailed, "PRECONDITION_FAILED", rejected, "the message is larger than max_message_size of the broker"},
		{amqp.FrameError, "FRAME_ERROR", retriable, "the broker could not decode a frame"},
		{amqp.SyntaxError, "SYNTAX_ERROR", retriable, "the broker found an invalid value in a frame"},
		{amqp.CommandInvalid, "COMMAND_INVALID", retriable, "the broker did not expect the request"},
		{amqp.ChannelError, "CHANNEL_ERROR", retriable, "the channel was closed"},
		{amqp.UnexpectedFrame, "UNEXPECTED_FRAME", retriable, "the broker did not expect the frame"},
		{amqp.ResourceError, "RESOURCE_ERROR", retriable, "the broker lacks a resource"},
		{amqp.NotAllowed, "NOT_ALLOWED", denied, "the virtual host does not exist, the user has no permission in it, or it has its maximum number of connections"},
		{amqp.NotImplemented, "NOT_IMPLEMENTED", retriable, "the broker does not implement the request"},
		{amqp.InternalError, "INTERNAL_ERROR", retriable, "the broker had an internal error, or the virtual host is down"},
	}
}

// errorOf returns the error for a code.
func errorOf(code int) *codeError {
	for _, c := range codes() {
		if c.code == code {
			return &c
		}
	}
	return &codeError{code, "error", retriable, "an unknown code"}
}

// brokerError returns err with our text if it is a response of the broker.
func brokerError(err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Server {
		return errorOf(e.Code)
	}
	return err
}

var (
	errLost     = errors.New("the connection was lost before the broker's confirm")
	errClosed   = errors.New("the broker closed the channel because of another message")
	errNack     = errors.New("the broker did not store the message (basic.nack)")
	errNoRoute  = fmt.Errorf("%w: bind a queue to the exchange with this routing key", errorOf(amqp.NoRoute))
	errTooLarge = errorOf(amqp.PreconditionFailed)
)

// missingError returns the error for a destination that does not exist.
func missingError(d destination) error {
	advice := fmt.Sprintf("Declare the exchange, for example: rabbitmqadmin declare exchange name='%s' type=topic durable=true; and bind a queue to it. Until then, its messages are unroutable: docs/rabbitmq.md says how to avoid that.", d.exchange)
	if d.exchange == "" {
		advice = fmt.Sprintf("Declare the queue, for example: rabbitmqadmin declare queue name='%s' durable=true queue_type=quorum.", d.routingKey)
	}
	return sink.NewError(sink.ErrMissing, errorOf(amqp.NotFound).text, advice)
}

// deniedError returns the error for a destination to which the user may not write.
func deniedError(d destination, user string) error {
	text, name := fmt.Sprintf("the user may not write to %s, or it is internal", d), d.exchange
	if d.exchange == "" {
		text, name = "the user may not write to the default exchange", "amq.default"
	}
	return sink.NewError(sink.ErrAccess, text, fmt.Sprintf(
		"Give user %s the permission to write to %s, in addition to those that rabbitmqctl list_user_permissions prints: "+
			"rabbitmqctl set_permissions --vhost VHOST USER CONFIGURE WRITE READ; with topic permissions, also rabbitmqctl set_topic_permissions.", user, name))
}
