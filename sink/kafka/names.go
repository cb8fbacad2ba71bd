package kafka

import (
	"fmt"
	"strings"
)

// maxTopicLength is the maximum length of a topic name.
const maxTopicLength = 249

// Names are Kafka's rules for topic names (org.apache.kafka.common.internals.Topic). Names that begin with two
// underscores are illegal too, because a row must not be able to write to __consumer_offsets.
type Names struct{}

// Illegal returns why a topic of this name cannot be written, or "" if it can.
func (Names) Illegal(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxTopicLength:
		return fmt.Sprintf("has %d characters, Kafka allows %d", len(name), maxTopicLength)
	case name == "." || name == "..":
		return "is reserved"
	case strings.HasPrefix(name, "__"):
		return "begins with __, which is reserved for the cluster's own topics"
	}
	for i := range len(name) {
		if !legalTopicByte(name[i]) {
			return fmt.Sprintf("contains %q; Kafka allows letters, digits, '.', '_' and '-'", name[i])
		}
	}
	return ""
}

func legalTopicByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '-'
}
