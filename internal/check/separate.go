package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// topicNames checks whether rows can select any topic that the user may write.
func (s *kafkaChecker) topicNames() {
	const name = "topic names"
	route := s.Relay.Route
	found := fmt.Sprintf("outbox.topic %s begins with a column: a row can select any topic that the user may write", route.Topic)
	switch prefix := route.TopicPrefix(); {
	case route.FixedTopic() != "":
		s.ok(name, "", "every row goes to "+prefix)
		return
	case prefix != "":
		s.ok(name, "", "all topics begin with "+prefix)
		return
	case len(route.TopicRules) > 0:
		found = "outbox.topic_rules may replace the whole name: a row can select any topic that the user may write"
	}
	s.warn(name, "", found, "begin the names with a fixed prefix, as "+encode.DefaultTopic+" does, and let the user write only there: "+s.separation())
}

// separation returns the commands that grant a relay's user only the rights on its own topics and its transactional id.
func (s *kafkaChecker) separation() string {
	const rights = "--operation Describe --operation Write --operation Read"
	commands := []string{s.cfg.GrantCommand(rights + " --resource-pattern-type prefixed --topic '<prefix>'")}
	if dead := s.Relay.DeadLetterTopic; dead != "" {
		commands = append(commands, s.cfg.GrantCommand(rights+" --topic "+dead))
	}
	if positions := s.Relay.Positions.Topic; positions != "" {
		commands = append(commands, s.cfg.GrantCommand(rights+" --topic "+positions),
			s.cfg.GrantCommand("--operation Describe --operation Write --transactional-id "+s.transactionalID()))
	}
	return strings.Join(commands, "; ")
}

// sharing checks whether other relays use the same position topic.
func (s *kafkaChecker) sharing(ctx context.Context) {
	const name = "other relays"
	topic := s.Relay.Positions.Topic
	if topic == "" {
		return
	}
	var others []string
	missing := false
	if !s.ask(ctx, &s.report, name, topic, func(ctx context.Context) (err error) {
		others, err = s.relaysIn(ctx, topic)
		if errors.Is(err, sink.ErrMissing) || isRefusal(err) { // other conditions report it
			missing, err = true, nil
		}
		return err
	}) || missing {
		return
	}
	others = slices.DeleteFunc(others, func(other string) bool { return other == s.Relay.Name })
	if len(others) == 0 {
		s.ok(name, topic, "none")
		return
	}
	s.warn(name, topic, fmt.Sprintf("relays %s use the topic too: a user of one can change the positions of the others and stop them", list(others)),
		"if their users do not trust each other, give each relay topics of its own, and its user only those (docs/security.md#separate-relays-by-acls)")
}

// relaysIn returns the names of the relays that have a value in a position topic.
func (s *kafkaChecker) relaysIn(ctx context.Context, topic string) ([]string, error) {
	reader, err := s.cfg.OpenDeadLetters(ctx, topic, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	ranges, err := reader.OffsetRanges(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string) // by key
	for _, offsets := range ranges {
		err := reader.Read(ctx, offsets, func(rec *sink.StoredRecord) error {
			key := string(rec.Key)
			names[key], _, _ = strings.Cut(key, "/")
			if rec.Value == nil {
				delete(names, key)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Compact(slices.Sorted(maps.Values(names))), nil
}

// list returns the first few of names.
func list(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
