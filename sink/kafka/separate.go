package kafka

import (
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Separate implements [sink.Separator].
func (c Config) Separate(use sink.Use) string {
	const rights = "--operation Describe --operation Write --operation Read"
	commands := []string{c.grantCommand(rights + " --resource-pattern-type prefixed --topic '<prefix>'")}
	if use.DeadLetters != "" {
		commands = append(commands, c.grantCommand(rights+" --topic "+use.DeadLetters))
	}
	if use.Positions != "" {
		commands = append(commands, c.grantCommand(rights+" --topic "+use.Positions),
			c.grantCommand("--operation Describe --operation Write --transactional-id "+TransactionalID(use.Positions, use.Relay)))
	}
	return strings.Join(commands, "; ")
}
