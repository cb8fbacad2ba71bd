package kafka

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// adminCommand returns the command line of one of Kafka's tools, for an administrator.
func (c Config) adminCommand(tool, arguments string) string {
	text := fmt.Sprintf("%s --bootstrap-server %s", tool, c.Brokers[0])
	if c.TLS != nil || c.SASL != nil {
		text += " --command-config <an administrator's>"
	}
	return text + " " + arguments
}

// grantCommand returns the command line that grants the relay's user a right, in the arguments of kafka-acls.sh.
func (c Config) grantCommand(right string) string {
	principal := "<the relay's>"
	if c.SASL != nil && c.SASL.User != "" {
		principal = c.SASL.User
	}
	return c.adminCommand("kafka-acls.sh", fmt.Sprintf("--add --allow-principal 'User:%s' %s", principal, right))
}

// createTopic returns the command that creates a topic.
func (c *client) createTopic(topic string) string {
	arguments := fmt.Sprintf("--create --topic %s --partitions 6", topic)
	if c.compacted {
		arguments = createCompacted(topic)
	}
	return c.cfg.adminCommand("kafka-topics.sh", arguments)
}

// createCompacted returns the arguments of kafka-topics.sh that create a topic for positions.
func createCompacted(topic string) string {
	return fmt.Sprintf("--create --topic %s --partitions 1 --config %s=%s", topic, cleanupPolicy, compact)
}

// adviseMissing returns both ways to fix a missing topic: the command that creates it, and the key with which the
// relay creates it.
func (c *client) adviseMissing(topic string) string {
	if c.compacted {
		return fmt.Sprintf("Create the topic: %s; or restart the relay, which creates it.", c.createTopic(topic))
	}
	return fmt.Sprintf("Create the topic: %s; or set sink.kafka.create_topics.partitions and restart the relay: it then creates missing topics.", c.createTopic(topic))
}

// adviseGone is for a topic that somebody has deleted, with its records. The owner of positions writes them again.
func (c *client) adviseGone() string {
	if c.compacted {
		return "nothing for this relay, which records its position again; one that is stopped has lost its record"
	}
	return `outbox-cdc audit --dsn "$OPERATOR_DSN" names the rows without a record; outbox-cdc replay --ids … --dsn "$OPERATOR_DSN" sends them again`
}

// loginAdvice is for a broker that rejects the connection.
const loginAdvice = "Fix sink.kafka.tls or sink.kafka.sasl, or the configuration of the listener."

// adviseRetry returns how to fix cause, because of which records wait that are to be written to topic. It is empty if a broker
// has responded and cause is not that access is denied.
func (c Config) adviseRetry(topic string, cause error) string {
	code, ok := errors.AsType[*codeError](cause)
	switch {
	case ok && code.code == sarama.ErrTopicAuthorizationFailed:
		return "Grant the relay's user the right to write: " + c.grantCommand("--operation Describe --operation Write --topic "+topic) + "."
	case errors.Is(cause, sink.ErrAccess), ok && isLoginRefusal(code.code):
		return loginAdvice
	case !ok:
		return reachAdvice
	}
	return ""
}

// isLoginRefusal reports whether the code says that the login failed, also one that is repeated on a connection.
func isLoginRefusal(code sarama.KError) bool {
	return code == sarama.ErrSASLAuthenticationFailed || code == sarama.ErrUnsupportedSASLMechanism || code == sarama.ErrIllegalSASLState
}
