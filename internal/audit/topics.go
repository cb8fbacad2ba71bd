package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/deadletter"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// readTopics reads the topics that rows belong to, and the dead-letter topic.
func (a *auditor) readTopics(ctx context.Context) error {
	dead := a.cfg.Relay.DeadLetterTopic
	total, done := 0, 0
	var readers []*topicReader
	defer func() {
		for _, r := range readers {
			_ = r.Close()
		}
	}()
	names := make([]string, 0, len(a.ledger.topics)+1)
	for _, t := range a.ledger.topics {
		names = append(names, t.Name)
	}
	if !slices.Contains(names, dead) {
		names = append(names, dead)
	}
	slices.Sort(names)
	for _, name := range names {
		if name == "" {
			continue
		}
		r, err := a.openTopic(ctx, name)
		if errors.Is(err, sink.ErrMissing) {
			if name != dead {
				a.notes = append(a.notes, fmt.Sprintf("topic %s does not exist", name))
			}
			continue
		}
		if err != nil {
			return err
		}
		readers = append(readers, r)
		total += r.records()
	}
	if err := a.findCompacted(ctx, readers); err != nil {
		return err
	}
	for _, r := range readers {
		read := a.ledger.addRecord
		if r.name == dead {
			read = a.addDeadLetter
		}
		for _, span := range r.spans {
			part := a.ledger.addPartition(r.name, span)
			if a.ledger.tooMany != nil {
				return a.ledger.tooMany
			}
			err := r.Read(ctx, span, func(stored *sink.StoredRecord) error {
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

// findCompacted finds out which topics are compacted, as far as the user may describe them.
func (a *auditor) findCompacted(ctx context.Context, readers []*topicReader) error {
	cfg, ok := a.cfg.Relay.Sink.(kafka.Config)
	if !ok {
		return nil
	}
	names := make([]string, len(readers))
	for i, r := range readers {
		names[i] = r.name
	}
	inspector, err := kafka.NewInspector(cfg)
	if err != nil {
		return err
	}
	defer inspector.Close()
	topics, err := inspector.Topics(ctx, names...)
	if err != nil {
		return err
	}
	for i, t := range topics {
		a.ledger.topics[a.ledger.topic(names[i])].compacted = slices.Contains(strings.Split(t.Settings["cleanup.policy"], ","), "compact")
	}
	return nil
}

// A topicReader reads a topic up to where it ended when it was opened.
type topicReader struct {
	sink.DeadLetters
	name  string
	spans []sink.Span
}

func (a *auditor) openTopic(ctx context.Context, name string) (*topicReader, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Relay.StartupTimeout)
	defer cancel()
	reader, err := a.cfg.Relay.Sink.OpenDeadLetters(ctx, name, a.log)
	if err != nil {
		return nil, err
	}
	spans, err := reader.Spans(ctx)
	if err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return &topicReader{reader, name, spans}, nil
}

// records is about how many records there are.
func (r *topicReader) records() (n int) {
	for _, s := range r.spans {
		n += int(s.End - s.Begin)
	}
	return n
}

// addDeadLetter adds a record of the dead-letter topic.
func (a *auditor) addDeadLetter(_ uint16, stored *sink.StoredRecord) {
	letter, ok := encode.ParseDeadLetter(&stored.Record)
	if !ok || letter.Slot != a.cfg.Slot {
		return
	}
	l := deadletter.DeadLetter{DeadLetter: *letter}
	if id := l.ID(a.cfg.Relay.Route.Columns.ID); id != "" {
		a.ledger.addDeadLetter([]byte(id))
	}
}
