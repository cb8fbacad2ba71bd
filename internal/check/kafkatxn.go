package check

import (
	"context"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// transactions checks what exactly_once needs.
func (s *kafkaLook) transactions(ctx context.Context) {
	if !s.cfg.ExactlyOnce {
		return
	}
	limited, cancel := context.WithTimeout(ctx, s.each)
	defer cancel()
	id := kafka.TransactionalID(s.Relay.Name)
	if err := s.inspector.MayTransact(limited, s.Relay.Name); err != nil {
		fix := "use brokers from Kafka 3.6, or set sink.kafka.exactly_once to false"
		if isRefusal(err) {
			fix = s.acl("--operation Write --operation Describe --transactional-id " + id)
		}
		s.fail("transactions", "", oneLine(err), fix)
		return
	}
	s.ok("transactions", "", "the user may use the transactional id "+id)
	if len(s.brokers) > 0 {
		s.transactionTimeout(limited, s.brokers[0])
	}
}

// transactionTimeout compares sink.kafka.transaction_timeout with the maximum of a broker.
func (s *kafkaLook) transactionTimeout(ctx context.Context, b kafka.Broker) {
	longest, known, err := s.inspector.MaxTransactionTimeout(ctx, b)
	switch timeout := s.cfg.TransactionTimeout; {
	case err != nil || !known: // the relay reports a timeout that is too long when it starts
	case timeout > longest:
		s.fail("transaction timeout", "", fmt.Sprintf("sink.kafka.transaction_timeout is %s, and transaction.max.timeout.ms of broker %d is %d", timeout, b.ID, longest.Milliseconds()),
			fmt.Sprintf("set sink.kafka.transaction_timeout to %s or less, or raise transaction.max.timeout.ms of the brokers", longest))
	default:
		s.ok("transaction timeout", "", fmt.Sprintf("%s of at most %s", timeout, longest))
	}
}
