package kafka

import "github.com/outbox-cdc/outbox-cdc/sink"

// The classes of errors in Kafka's words. They hide the general text, and nothing else.
var (
	errUnreachable error = advisedError{kafkaError{sink.ErrUnreachable, "no Kafka broker can be reached"}, reachAdvice}
	errAccess      error = advisedError{kafkaError{sink.ErrAccess, "no access to Kafka"}, accessAdvice}
	errMissing     error = kafkaError{sink.ErrMissing, "topic does not exist"}
	errFenced      error = kafkaError{sink.ErrFenced, "fenced by another producer"}
	errFatal       error = kafkaError{sink.ErrFatal, "cannot go on writing to Kafka"}
)

const (
	reachAdvice  = "Check sink.kafka.brokers, and that the addresses the brokers advertise can be reached from here."
	accessAdvice = "Check sink.kafka.tls and sink.kafka.sasl. The user needs Describe and Write on the topics it writes, and Create, Describe,\n" +
		"Read and Write on position_topic."
)

// A kafkaError is a class of errors with a text of our own.
type kafkaError struct {
	class error
	text  string
}

func (e kafkaError) Error() string { return e.text }
func (e kafkaError) Unwrap() error { return e.class }

// An advisedError is a [sink.Advised] class of errors.
type advisedError struct {
	kafkaError

	advice string
}

func (e advisedError) Advice() string { return e.advice }

// A codeError is an error code of the Kafka protocol, from a broker or given by us in its
// place.
type codeError struct {
	Code   int16
	Name   string // as in the protocol's table, e.g. MESSAGE_TOO_LARGE
	Detail string // what it means here
}

// Error returns name and detail.
func (e *codeError) Error() string { return e.Name + ": " + e.Detail }

// named returns err with our own text in place of sarama's where a code of the protocol is
// at the bottom of it.
func named(err error) error {
	if k, ok := codeIn(err); ok {
		return errorOf(k)
	}
	return err
}
