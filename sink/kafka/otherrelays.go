package kafka

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

// otherRelays checks whether other relays use the same position topic.
func (i *inspection) otherRelays(ctx context.Context) {
	const condition = "other relays"
	topic := i.use.Positions
	if topic == "" {
		return
	}
	var others []string
	missing := false
	if !i.ask(ctx, condition, topic, func(ctx context.Context) (err error) {
		others, err = i.cfg.relaysIn(ctx, topic)
		if errors.Is(err, sink.ErrMissing) || isRefusal(err) { // other conditions report it
			missing, err = true, nil
		}
		return err
	}) || missing {
		return
	}
	others = slices.DeleteFunc(others, func(other string) bool { return other == i.use.Relay })
	if len(others) == 0 {
		i.Met(condition, topic, "none")
		return
	}
	i.Doubt(condition, topic, fmt.Sprintf("relays %s use the topic too: a user of one can change the positions of the others and stop them", list(others)),
		"if their users do not trust each other, give each relay topics of its own, and its user only those (docs/security.md#separate-relays-by-acls)")
}

// relaysIn returns the names of the relays that have a value in a position topic.
func (c Config) relaysIn(ctx context.Context, topic string) ([]string, error) {
	reader, err := c.OpenDeadLetters(ctx, topic, slog.New(slog.DiscardHandler))
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
