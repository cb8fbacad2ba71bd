package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

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
