package audit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// readTopics reads the topics that rows belong to, and the dead-letter topic, each up to where it ends at the
// beginning.
func (a *auditor) readTopics(ctx context.Context) error {
	dead := a.cfg.Relay.DeadLetterTopic
	wanted := make(map[string]bool, len(a.ledger.topics)+1)
	for _, t := range a.ledger.topics {
		wanted[t.Name] = true
	}
	wanted[dead] = true
	delete(wanted, "")
	names := slices.Sorted(maps.Keys(wanted))
	spans, err := a.spans(ctx, names...)
	if err != nil {
		return err
	}
	total, done := 0, 0
	for _, name := range names {
		if spans[name] == nil && name != dead {
			a.notes = append(a.notes, fmt.Sprintf("topic %s does not exist", name))
		}
		for _, span := range spans[name] {
			total += int(span.End - span.Begin)
		}
	}
	if err := a.findCompacted(ctx, slices.Sorted(maps.Keys(spans))); err != nil {
		return err
	}
	for _, name := range names {
		read := a.ledger.addRecord
		if name == dead {
			read = a.addDeadLetter
		}
		for _, span := range spans[name] {
			part := a.ledger.addPartition(name, span)
			if a.ledger.tooMany != nil {
				return a.ledger.tooMany
			}
			err := a.reader.Read(ctx, name, span, func(stored *sink.StoredRecord) error {
				read(part, stored)
				a.show("records", done+int(stored.Offset-span.Begin)+1, total)
				return nil
			})
			if err != nil {
				return err
			}
			done += int(span.End - span.Begin)
		}
	}
	return nil
}

// spans returns the partitions of the topics that exist.
func (a *auditor) spans(ctx context.Context, topics ...string) (map[string][]sink.Span, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Relay.StartupTimeout)
	defer cancel()
	return a.reader.Spans(ctx, topics...)
}

// findCompacted finds out which topics are compacted, as far as the user may describe them.
func (a *auditor) findCompacted(ctx context.Context, names []string) error {
	broker, ok := a.cfg.Relay.Sink.(sink.Compacter)
	if !ok {
		return nil
	}
	compacted, err := broker.Compacted(ctx, names...)
	for _, name := range names {
		a.ledger.topics[a.ledger.topic(name)].compacted = compacted[name]
	}
	return err
}

// addDeadLetter adds a record of the dead-letter topic.
func (a *auditor) addDeadLetter(_ uint16, stored *sink.StoredRecord) {
	letter, ok := encode.ParseDeadLetter(&stored.Record)
	if !ok || letter.Slot != a.cfg.Slot {
		return
	}
	l := deadletter.DeadLetter{DeadLetter: *letter}
	if id := l.EventID(a.cfg.Relay.Route.Columns.ID); id != "" {
		a.ledger.addDeadLetter([]byte(id))
	}
}
