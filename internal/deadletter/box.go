package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// ErrNoLetter says that there is no letter at a place that was named.
var ErrNoLetter = errors.New("no dead letter")

// A Box is a dead-letter topic. It belongs to one goroutine.
type Box struct {
	reader sink.DeadLetters
	topic  string
}

// Open reaches the topic, which it needs to read. The error wraps [sink.ErrMissing] if there is
// none. The Box must be closed.
func Open(ctx context.Context, broker sink.Broker, topic string, log *slog.Logger) (*Box, error) {
	reader, err := broker.OpenDeadLetters(ctx, topic, log)
	if err != nil {
		return nil, err
	}
	return &Box{reader: reader, topic: topic}, nil
}

// Close ends the Box.
func (b *Box) Close() error { return b.reader.Close() }

// A Survey is which letters a filter means, at one moment.
type Survey struct {
	Marked int // how many letters are left out because they were sent again

	filter *Filter
	spans  []sink.Span
	marks  map[Place]time.Time
	found  []found // by place
}

// A found is a letter that a filter means.
type found struct {
	Place
	at time.Time
}

// Len returns how many letters there are.
func (s *Survey) Len() int { return len(s.found) }

// Survey reads the whole topic and returns which letters f means. It keeps some 40 bytes for each of
// them, and for each mark. A place of f where no letter is, is an error that wraps ErrNoLetter.
func (b *Box) Survey(ctx context.Context, f Filter) (*Survey, error) {
	spans, err := b.reader.Spans(ctx)
	if err != nil {
		return nil, err
	}
	s := &Survey{filter: &f, spans: spans, marks: make(map[Place]time.Time)}
	for _, span := range spans {
		err := b.reader.Read(ctx, span, func(stored *sink.StoredRecord) error {
			if p, at, ok := markOf(stored); ok {
				s.marks[p] = at
			} else if l, ok := letterOf(stored); ok && f.admits(&l.DeadLetter) {
				s.found = append(s.found, found{Place: l.Place, at: l.At})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(f.Places) > 0 {
		if err := s.choose(b.topic); err != nil {
			return nil, err
		}
	}
	if all := len(s.found); !f.Resent {
		s.found = slices.DeleteFunc(s.found, func(l found) bool { return !s.marks[l.Place].IsZero() })
		s.Marked = all - len(s.found)
	}
	return s, nil
}

// choose keeps the letters at the places of the filter.
func (s *Survey) choose(topic string) error {
	at := make(map[Place]found, len(s.found))
	for _, l := range s.found {
		at[l.Place] = l
	}
	places := slices.Clone(s.filter.Places)
	slices.SortFunc(places, Place.Compare)
	s.found = s.found[:0]
	for _, p := range slices.Compact(places) {
		l, ok := at[p]
		if !ok {
			return fmt.Errorf("%w at %s of topic %s: %s", ErrNoLetter, p, topic, s.absent(p))
		}
		s.found = append(s.found, l)
	}
	return nil
}

// absent says why there is no letter at p.
func (s *Survey) absent(p Place) string {
	if int(p.Partition) >= len(s.spans) {
		return fmt.Sprintf("it has %d partitions, the first is 0", len(s.spans))
	}
	span := s.spans[p.Partition]
	switch {
	case p.Offset < span.Begin:
		return fmt.Sprintf("it has expired, partition %d begins at %d", p.Partition, span.Begin)
	case span.End == 0:
		return fmt.Sprintf("partition %d is empty", p.Partition)
	case p.Offset >= span.End:
		return fmt.Sprintf("the last offset of partition %d is %d", p.Partition, span.End-1)
	case !s.marks[p].IsZero():
		return "it is gone, and was sent again before"
	}
	return "what is there is none, or not one that the filters mean"
}

// Newest keeps the n letters that were put aside last.
func (s *Survey) Newest(n int) {
	if n >= len(s.found) {
		return
	}
	slices.SortStableFunc(s.found, func(a, b found) int { return cmp.Or(a.at.Compare(b.at), a.Compare(b.Place)) })
	s.found = slices.Delete(s.found, 0, len(s.found)-n)
	slices.SortFunc(s.found, func(a, b found) int { return a.Compare(b.Place) })
}

// Oldest keeps the first n letters of the topic, partition by partition.
func (s *Survey) Oldest(n int) { s.found = s.found[:min(n, len(s.found))] }

// Letters calls fn with each letter of a survey, by partition and offset; what has expired since is
// left out. The letter is fn's own. An error of fn ends it and is returned.
func (b *Box) Letters(ctx context.Context, s *Survey, fn func(*Letter) error) error {
	for _, span := range s.spans {
		first, _ := slices.BinarySearchFunc(s.found, Place{span.Partition, 0}, found.compareTo)
		last, _ := slices.BinarySearchFunc(s.found, Place{span.Partition + 1, 0}, found.compareTo)
		wanted := s.found[first:last]
		if len(wanted) == 0 {
			continue
		}
		span.Begin, span.End = wanted[0].Offset, wanted[len(wanted)-1].Offset+1
		err := b.reader.Read(ctx, span, func(stored *sink.StoredRecord) error {
			for len(wanted) > 0 && wanted[0].Offset < stored.Offset {
				wanted = wanted[1:]
			}
			if len(wanted) == 0 || wanted[0].Offset != stored.Offset {
				return nil
			}
			l, ok := letterOf(stored)
			if !ok {
				return nil
			}
			l.Resent = s.marks[l.Place]
			return fn(l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l found) compareTo(p Place) int { return l.Compare(p) }
