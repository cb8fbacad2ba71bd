package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// readTopics reads the dead-letter topic, and then the topics that rows belong to, each up to where it ends at the
// beginning.
func (a *auditor) readTopics(ctx context.Context) error {
	dead := a.cfg.Relay.DeadLetterTopic
	wanted := make(map[string]bool, len(a.ledger.topics))
	for _, t := range a.ledger.topics {
		wanted[t.Name] = true
	}
	delete(wanted, "")
	delete(wanted, dead)
	names := slices.Sorted(maps.Keys(wanted))
	if dead != "" && a.cfg.DeadLettersOptional {
		if _, err := a.ranges(ctx, dead); a.mayLack(dead, err) {
			dead = ""
		}
	}
	if dead != "" {
		names = slices.Insert(names, 0, dead) // first: the ledger judges a resent record by the dead letter of its row
	}
	ranges, err := a.readableRanges(ctx, names...)
	if err != nil {
		return err
	}
	for _, offsets := range ranges[dead] {
		a.ledger.deadHidden = a.ledger.deadHidden || offsets.Open(dead) != nil
	}
	total, done := 0, 0
	for _, name := range names {
		if ranges[name] == nil && name != dead {
			a.notes = append(a.notes, fmt.Sprintf("topic %s does not exist", name))
		}
		for _, offsets := range ranges[name] {
			total += int(offsets.End - offsets.Begin)
			if err := offsets.Open(name); err != nil {
				a.notes = append(a.notes, err.Error())
			}
		}
	}
	if err := a.findCompacted(ctx, slices.Sorted(maps.Keys(ranges))); err != nil {
		return err
	}
	for _, name := range names {
		read := a.ledger.addRecord
		if name == dead {
			read = a.addDeadLetter
		}
		for _, offsets := range ranges[name] {
			part := a.ledger.addPartition(name, offsets)
			if a.ledger.tooMany != nil {
				return a.ledger.tooMany
			}
			err := a.reader.Read(ctx, name, offsets, func(stored *sink.StoredRecord) error {
				read(part, stored)
				a.show("records", done+int(stored.Offset-offsets.Begin)+1, total)
				return nil
			})
			if a.mayLack(name, err) {
				break
			}
			if err != nil {
				return err
			}
			done += int(offsets.End - offsets.Begin)
		}
	}
	return nil
}

// mayLack reports whether err is that the user may not read a topic that the audit does not need. It adds a note then.
func (a *auditor) mayLack(topic string, err error) bool {
	lacks := a.cfg.DeadLettersOptional && topic == a.cfg.Relay.DeadLetterTopic && errors.Is(err, sink.ErrAccess)
	if lacks {
		a.notes = append(a.notes, fmt.Sprintf("earlier dead letters are not read, and their rows are missing: %v", err))
	}
	return lacks
}

// readableRanges returns the partitions of the topics that exist, with every record that they have now. While open transactions
// hide some, it waits, at most as long as for the slot.
func (a *auditor) readableRanges(ctx context.Context, topics ...string) (map[string][]sink.OffsetRange, error) {
	deadline := time.NewTimer(a.cfg.Wait)
	defer deadline.Stop()
	type place struct {
		topic     string
		partition int32
	}
	needed := make(map[place]int64) // the ends of partitions where a transaction was open
	for first := true; ; first = false {
		ranges, err := a.ranges(ctx, topics...)
		if err != nil {
			return nil, err
		}
		var hidden error
		for topic, ofTopic := range ranges {
			for i, s := range ofTopic {
				at := place{topic, s.Partition}
				if first {
					needed[at] = s.Hidden
				}
				if s.End < needed[at] {
					hidden = s.Open(topic)
				} else {
					ofTopic[i].Hidden = 0 // what is hidden now was not there before
				}
			}
		}
		if hidden == nil {
			return ranges, nil
		}
		a.cfg.Progress("waiting: "+hidden.Error(), 0, 1)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-deadline.C:
			return ranges, nil
		case <-time.After(pollInterval):
		}
	}
}

// ranges returns the partitions of the topics that exist.
func (a *auditor) ranges(ctx context.Context, topics ...string) (map[string][]sink.OffsetRange, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Relay.StartupTimeout)
	defer cancel()
	return a.reader.OffsetRanges(ctx, topics...)
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
	deadLetter, ok := encode.ParseDeadLetter(&stored.Record)
	if !ok {
		return
	}
	flag := hasDeadLetter
	if deadLetter.Slot != a.cfg.Slot {
		flag = hasOtherDeadLetter
	}
	columns := a.cfg.Relay.Route.Columns
	if id := deadLetter.EventID(columns.ID); id != "" {
		a.ledger.addDeadLetter([]byte(id), flag)
	} else if deadLetter.IsRow() {
		a.ledger.addDeadLetter(standIn(deadLetter.Columns, columns.Payload), flag)
	}
}
