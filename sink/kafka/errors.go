package kafka

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The error classes of package sink with texts for Kafka.
var (
	errUnreachable = sink.NewError(sink.ErrUnreachable, "no Kafka broker can be reached", reachAdvice)
	errAccess      = sink.NewError(sink.ErrAccess, "no access to Kafka", accessAdvice)
	errLogin       = sink.NewError(sink.ErrAccess, "no access to Kafka", loginAdvice)
	errMissing     = sink.NewError(sink.ErrMissing, "topic does not exist", "")
	errFatal       = sink.NewError(sink.ErrFatal, "cannot continue writing to Kafka", "")
)

const (
	reachAdvice  = "Check sink.kafka.brokers, that the brokers run, and that the addresses they advertise can be reached from here."
	accessAdvice = "Check sink.kafka.tls and sink.kafka.sasl. The user needs Describe and Write on the topics it writes, and Create, Describe,\n" +
		"Read and Write on position_topic."
)

// otherListener returns err of a broker that behaves like one with another kind of listener than the configuration expects. A proxy
// whose broker is down does so too, so a retry may help.
func otherListener(err error) error { return sink.Advise(err, loginAdvice) }

// unreachable returns the error class for brokers that could not be reached, with last as the last cause. If that has advice, the
// class has none.
func unreachable(last error) error {
	if sink.AdviceOf(last) != "" {
		return sink.NewError(sink.ErrUnreachable, errUnreachable.Error(), "")
	}
	return errUnreachable
}

// A codeError is an error code of the Kafka protocol. It comes from a broker, or from a check before sending:
// https://kafka.apache.org/protocol#protocol_error_codes
type codeError struct {
	code   sarama.KError
	name   string // from the table of the protocol, such as MESSAGE_TOO_LARGE
	detail string // what it means for the relay
}

// Error returns name and detail.
func (e *codeError) Error() string { return e.name + ": " + e.detail }

// A supersededError is the error of an owner that a later producer with its transactional id has shut out. It implements
// [sink.Advised].
type supersededError struct {
	id    string // transactional id
	cause error  // names the id
}

func (e *supersededError) Error() string { return fmt.Sprintf("%v: %v", sink.ErrSuperseded, e.cause) }

func (e *supersededError) Unwrap() []error { return []error{sink.ErrSuperseded, e.cause} }

func (e *supersededError) Advice() string {
	return "If no other relay of this slot has taken over, another program uses transactional id " + e.id + ". Stop it, or give it an\n" +
		"id of its own. Only the relay's user needs Write on this id."
}

// errNoResponse: a broker accepts the connection, but does not respond.
var errNoResponse = errors.New("no response")

// inOurWords returns a codeError if err wraps an error code, errNoResponse if the client has closed the
// connection while it waited, and otherwise err.
func inOurWords(err error) error {
	if k, ok := codeIn(err); ok {
		return errorSaying(k, messageIn(err, k))
	}
	if errors.Is(err, net.ErrClosed) {
		return errNoResponse
	}
	return err
}

// A class says what a broker's response means for a batch.
type class uint8

const (
	accepted      class = iota // stored
	retriable                  // back off, find the leader, resend the same batch
	unknownTopic               // as retriable, and log it: somebody has to create the topic
	accessDenied               // as retriable with a longer back-off, and log it: somebody has to grant a privilege or fix a password
	corruptBatch               // as retriable over a new connection, at most corruptLimit times
	producerLost               // the broker does not know this producer's sequence: get a new identity
	invalidRecord              // the broker rejects a record of the batch: find it
	superseded                 // a later producer has our identity: an owner stops, any other producer gets a new identity
	fatal                      // nothing more can be sent
	unexpected                 // no valid response to this request: the record may be lost, so nothing more is sent
	unsent                     // the fence closed before the request was complete: resend the batch when it opens
)

// classTable is the only place that decides what an error code means. Any other code is unexpected.
func classTable() [unsent + 1][]codeError {
	return [...][]codeError{
		accepted: {
			{sarama.ErrNoError, "NONE", "accepted"},
			{sarama.ErrDuplicateSequenceNumber, "DUPLICATE_SEQUENCE_NUMBER", "the broker has already stored it: an earlier response was lost"},
		},
		retriable: {
			{sarama.ErrUnknown, "UNKNOWN_SERVER_ERROR", "the broker failed with an unexpected error"},
			{sarama.ErrLeaderNotAvailable, "LEADER_NOT_AVAILABLE", "the partition has no leader at the moment"},
			{sarama.ErrNotLeaderForPartition, "NOT_LEADER_OR_FOLLOWER", "the leader has moved"},
			{sarama.ErrRequestTimedOut, "REQUEST_TIMED_OUT", "replicas did not confirm in time; the batch may be stored"},
			{sarama.ErrBrokerNotAvailable, "BROKER_NOT_AVAILABLE", "the broker is not available"},
			{sarama.ErrReplicaNotAvailable, "REPLICA_NOT_AVAILABLE", "the replica is not available"},
			{sarama.ErrNetworkException, "NETWORK_EXCEPTION", "the broker lost a connection of its own"},
			{sarama.ErrNotEnoughReplicas, "NOT_ENOUGH_REPLICAS", "fewer replicas are in sync than min.insync.replicas requires"},
			{sarama.ErrNotEnoughReplicasAfterAppend, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "the batch is stored, but on fewer replicas than min.insync.replicas"},
			{sarama.ErrKafkaStorageError, "KAFKA_STORAGE_ERROR", "the broker cannot reach its disk; leadership will move"},
			{sarama.ErrFencedLeaderEpoch, "FENCED_LEADER_EPOCH", "the leader has changed"},
			{sarama.ErrUnknownLeaderEpoch, "UNKNOWN_LEADER_EPOCH", "the broker does not know the new leader yet"},
			{sarama.ErrThrottlingQuotaExceeded, "THROTTLING_QUOTA_EXCEEDED", "a quota is used up for now"},
			{sarama.KError(100), "UNKNOWN_TOPIC_ID", "the topic was re-created"},
			{sarama.KError(103), "INCONSISTENT_TOPIC_ID", "the topic was re-created"},
			{sarama.ErrListenerNotFound, "LISTENER_NOT_FOUND", "the leader does not have the listener of this connection"},
			// Responses to requests other than produce, from a broker that is starting or is not
			// the right one.
			{sarama.ErrOffsetsLoadInProgress, "COORDINATOR_LOAD_IN_PROGRESS", "the coordinator is starting"},
			{sarama.ErrConsumerCoordinatorNotAvailable, "COORDINATOR_NOT_AVAILABLE", "the coordinator is not available"},
			{sarama.ErrNotCoordinatorForConsumer, "NOT_COORDINATOR", "another broker is the coordinator"},
			{sarama.ErrConcurrentTransactions, "CONCURRENT_TRANSACTIONS", "the coordinator is completing the last transaction, and needs a leader of each of its partitions for that"},
			{sarama.ErrNotController, "NOT_CONTROLLER", "another broker is the controller"},
			{sarama.ErrOffsetOutOfRange, "OFFSET_OUT_OF_RANGE", "the topic was emptied or re-created while it was read"},
			{sarama.ErrOffsetNotAvailable, "OFFSET_NOT_AVAILABLE", "the new leader does not know the topic's end yet"},
			{sarama.ErrEligibleLeadersNotAvailable, "ELIGIBLE_LEADERS_NOT_AVAILABLE", "no replica may become leader at the moment"},
			{sarama.ErrInvalidReplicationFactor, "INVALID_REPLICATION_FACTOR", "fewer brokers are available than the topic's replication factor"},
		},
		unknownTopic: {
			{sarama.ErrUnknownTopicOrPartition, "UNKNOWN_TOPIC_OR_PARTITION", "the topic or partition does not exist"},
		},
		accessDenied: {
			{sarama.ErrTopicAuthorizationFailed, "TOPIC_AUTHORIZATION_FAILED", "the user lacks a right on the topic"},
			{sarama.ErrTransactionalIDAuthorizationFailed, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "the user needs Write and Describe on the transactional id"},
			{sarama.ErrClusterAuthorizationFailed, "CLUSTER_AUTHORIZATION_FAILED", "the user needs IdempotentWrite on the cluster, or Write on a topic"},
			{sarama.ErrSASLAuthenticationFailed, "SASL_AUTHENTICATION_FAILED", "user name and password, or the token, are wrong"},
			{sarama.ErrUnsupportedSASLMechanism, "UNSUPPORTED_SASL_MECHANISM", "the listener does not offer this SASL mechanism"},
			{sarama.ErrIllegalSASLState, "ILLEGAL_SASL_STATE", "the listener does not expect a SASL login"},
			{sarama.ErrSecurityDisabled, "SECURITY_DISABLED", "the cluster has no security features configured"},
		},
		corruptBatch: {
			// A network error would not corrupt the same batch again over a new connection. Brokers before 2.4
			// (KIP-467) respond with this code to a record without key for a compacted topic.
			{sarama.ErrInvalidMessage, "CORRUPT_MESSAGE", "the broker finds the batch invalid"},
		},
		producerLost: {
			{sarama.ErrOutOfOrderSequenceNumber, "OUT_OF_ORDER_SEQUENCE_NUMBER", "the broker lacks earlier records of this producer"},
			{sarama.ErrUnknownProducerID, "UNKNOWN_PRODUCER_ID", "the broker has forgotten this producer"},
		},
		invalidRecord: {
			{sarama.ErrMessageSizeTooLarge, "MESSAGE_TOO_LARGE", "larger than max.message.bytes of the topic"},
			{sarama.ErrMessageSetSizeTooLarge, "RECORD_LIST_TOO_LARGE", "larger than segment.bytes of the topic"},
			{sarama.ErrInvalidTimestamp, "INVALID_TIMESTAMP", "outside message.timestamp.before.max.ms or message.timestamp.after.max.ms of the topic"},
			{sarama.ErrInvalidRecord, "INVALID_RECORD", "the broker's validation rejects it, for example because a record in a compacted topic has no key"},
			{sarama.ErrInvalidTopic, "INVALID_TOPIC_EXCEPTION", "the broker rejects the name of the topic"},
		},
		superseded: {
			{sarama.ErrInvalidProducerEpoch, "INVALID_PRODUCER_EPOCH", "the broker has seen a later epoch of this producer"},
			{sarama.ErrProducerFenced, "PRODUCER_FENCED", "another producer has our transactional id"},
			{sarama.ErrInvalidProducerIDMapping, "INVALID_PRODUCER_ID_MAPPING", "another producer has our transactional id"},
		},
		fatal: {
			{sarama.ErrUnsupportedVersion, "UNSUPPORTED_VERSION", "the broker is too old: the oldest supported version is 0.11"},
			{sarama.ErrUnsupportedForMessageFormat, "UNSUPPORTED_FOR_MESSAGE_FORMAT", "the topic has an old message format without headers and sequences"},
			{sarama.ErrUnsupportedCompressionType, "UNSUPPORTED_COMPRESSION_TYPE", "the broker does not support this compression"},
			{sarama.ErrPolicyViolation, "POLICY_VIOLATION", "a policy of the cluster forbids it"},
			{sarama.ErrInvalidRequiredAcks, "INVALID_REQUIRED_ACKS", "the broker does not accept acks=all"},
			{sarama.ErrInvalidRequest, "INVALID_REQUEST", "the broker does not understand the request"},
			{sarama.ErrInvalidTxnState, "INVALID_TXN_STATE", "the partition or the coordinator has the transaction in another state"},
			{sarama.KError(120), "TRANSACTION_ABORTABLE", "the transaction can only be aborted"},
			{sarama.ErrInvalidTransactionTimeout, "INVALID_TRANSACTION_TIMEOUT", "the timeout of the transaction is longer than transaction.max.timeout.ms of the brokers"},
			// Responses to creating or deleting a topic.
			{sarama.ErrInvalidPartitions, "INVALID_PARTITIONS", "the cluster rejects this number of partitions"},
			{sarama.ErrInvalidConfig, "INVALID_CONFIG", "the cluster rejects these topic settings"},
			{sarama.ErrTopicDeletionDisabled, "TOPIC_DELETION_DISABLED", "delete.topic.enable is false in the cluster"},
		},
		unexpected: nil, // all other codes
		unsent:     nil, // no code of a broker
	}
}

// A code is an error code and its class.
type code struct {
	codeError
	class class
}

func allCodes() []code {
	var all []code
	for c, rows := range classTable() {
		for _, r := range rows {
			all = append(all, code{r, class(c)})
		}
	}
	return all
}

func lookup(k sarama.KError) code {
	for _, c := range allCodes() {
		if c.code == k {
			return c
		}
	}
	return code{codeError{k, fmt.Sprintf("error code %d", int16(k)), "this request cannot get this code"}, unexpected}
}

// classify returns the class of k.
func classify(k sarama.KError) class {
	if k == sarama.ErrNoError {
		return accepted // the usual case, without a search in the table
	}
	return lookup(k).class
}

// classifyRead returns the class of k for a request that writes no record, and so can always be retried:
// accepted, retriable, accessDenied or fatal.
func classifyRead(k sarama.KError) class {
	switch c := classify(k); c {
	case accepted, accessDenied, fatal:
		return c
	case invalidRecord:
		if k == sarama.ErrInvalidTopic {
			return fatal
		}
	case retriable, unknownTopic, corruptBatch, producerLost, superseded, unexpected, unsent:
	}
	return retriable
}

// errorOf returns k as an error with our text.
func errorOf(k sarama.KError) *codeError {
	c := lookup(k)
	return &c.codeError
}

// errorSaying returns errorOf(k) with the message that the broker has sent with k, if that is not empty.
func errorSaying(k sarama.KError, message string) *codeError {
	e := errorOf(k)
	if message != "" {
		e.detail += "; the broker says: " + strings.TrimSuffix(message, ".")
	}
	return e
}

// textOf returns an optional text of a response.
func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// classifyRequest returns the class for the batches of a request that failed as a whole. The broker may have
// stored them; sequence numbers make it safe to resend them.
func classifyRequest(err error) class {
	if _, ok := errors.AsType[*fenceError](err); ok {
		return unsent // a closed fence
	}
	if k, ok := codeIn(err); ok {
		return classifyRead(k) // from a re-authentication
	}
	if _, ok := errors.AsType[sarama.PacketEncodingError](err); ok {
		return fatal // the request cannot be encoded
	}
	if errors.Is(err, sink.ErrAccess) {
		return accessDenied
	}
	return retriable
}
