package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// ErrNotFound is the error for an offset of the filter that has no dead letter.
var ErrNotFound = errors.New("no dead letter")

// A Topic is the dead-letter topic. It belongs to one goroutine.
type Topic struct {
	reader sink.DeadLetters
	name   string
}

// Open opens the topic for reading. The error wraps [sink.ErrMissing] if it does not exist, and [errors.ErrUnsupported] if the
// broker cannot be read. The Topic must be closed.
func Open(ctx context.Context, broker sink.Broker, topic string, log *slog.Logger) (*Topic, error) {
	reader, err := sink.OpenDeadLetters(ctx, broker, topic, log)
	if err != nil {
		return nil, err
	}
	return &Topic{reader: reader, name: topic}, nil
}

// Close closes the Topic.
func (b *Topic) Close() error { return b.reader.Close() }

// A Selection is the dead letters that a filter selected at one time.
type Selection struct {
	AlreadyResent int // how many dead letters it leaves out because they were resent
	OtherSlots    int // how many because they are of other slots than that of the filter
	Parked        int // how many because their key is parked
	Released      int // how many because their key was parked, and they were released or discarded
	Elsewhere     int // how many because their key was parked under another slot
	Lost          int // how many because their key was parked, and whether it was released is not known

	// Hidden has a *[sink.OpenTransactionError] for each partition whose newest records could not be read.
	Hidden []error

	filter   *Filter
	ranges   []sink.OffsetRange
	resentAt map[PartitionOffset]time.Time
	asked    bool                        // Parked of the filter was called
	parked   map[string]*parking.Parking // its result, by the id of the parking; nil: nothing is known
	began    time.Time                   // from when on it is complete
	matches  []match                     // by partition and offset
}

// A match is a dead letter that a filter selects.
type match struct {
	PartitionOffset
	at       time.Time
	released bool // named by the filter, which does not select it
}

// Len returns the number of dead letters.
func (s *Selection) Len() int { return len(s.matches) }

// Select reads the whole topic and returns the dead letters that f selects. It uses about 40 bytes for each of them, and
// for each resent record. The error wraps ErrNotFound if an offset of f has no dead letter. Select cannot tell who has
// written a dead letter: any producer with access to the topic can write one, or mark others as resent.
func (b *Topic) Select(ctx context.Context, f Filter) (*Selection, error) {
	ranges, err := b.reader.OffsetRanges(ctx)
	if err != nil {
		return nil, err
	}
	s := &Selection{filter: &f, ranges: ranges, resentAt: make(map[PartitionOffset]time.Time)}
	for _, offsets := range ranges {
		if err := offsets.Open(b.name); err != nil {
			s.Hidden = append(s.Hidden, err)
		}
		err := b.reader.Read(ctx, offsets, func(stored *sink.StoredRecord) error {
			if p, at, ok := parseResentRecord(stored); ok {
				s.resentAt[p] = at
				return nil
			}
			l, ok := parseDeadLetter(stored)
			if !ok || !f.matches(&l.DeadLetter) {
				return nil
			}
			return s.add(ctx, l)
		})
		if err != nil {
			return nil, err
		}
	}
	if len(f.Offsets) > 0 {
		if err := s.keepOffsets(b.name); err != nil {
			return nil, err
		}
	}
	if all := len(s.matches); !f.Resent {
		s.matches = slices.DeleteFunc(s.matches, func(l match) bool { return !s.resentAt[l.PartitionOffset].IsZero() })
		s.AlreadyResent += all - len(s.matches)
	}
	return s, nil
}

// add adds a dead letter that the filter matches, or counts why it is left out. Dead letters at the offsets of the filter are left out only
// if the filter does not select them.
func (s *Selection) add(ctx context.Context, l *DeadLetter) error {
	f, named := s.filter, len(s.filter.Offsets) > 0
	topic, err := s.findParking(ctx, l)
	switch {
	case err != nil:
		return err
	case f.Topic != "" && cmp.Or(l.Record.Topic, topic) != f.Topic:
	case l.Elsewhere && (f.Resendable || !f.Resent) && !named:
		s.Elsewhere++
	case f.Slot != "" && l.Slot != f.Slot && !l.Elsewhere:
		s.OtherSlots++
	case l.Waiting && f.Resendable && !named:
		s.Parked++
	case l.Lost && f.Resendable && !f.Resent && !named:
		s.Lost++
	case l.Parked != nil && !l.Lost && (!l.Waiting || l.Passed) && !l.Elsewhere && !f.Resent:
		s.Released++
		if named {
			s.matches = append(s.matches, match{PartitionOffset: l.PartitionOffset, released: true})
		}
	default:
		s.matches = append(s.matches, match{PartitionOffset: l.PartitionOffset, at: l.At})
	}
	return nil
}

// findParking sets whether the key of l is parked, here or elsewhere, or whether that is not known, and whether a release has passed l.
// It returns the topic of a key that is parked here.
func (s *Selection) findParking(ctx context.Context, l *DeadLetter) (topic string, err error) {
	if l.Parked == nil || s.filter.Parked == nil {
		return "", nil
	}
	if !s.asked {
		if err := s.askParked(ctx); err != nil {
			return "", err
		}
	}
	if p := s.parked[l.Parked.Parking]; p != nil {
		l.Waiting, l.Passed = true, p.IsPassed(l.Parked.Place)
		return p.Topic, nil
	}
	l.Elsewhere = s.filter.Relay != "" && l.Slot != s.filter.Relay
	l.Lost = !l.Elsewhere && (s.parked == nil || l.At.Before(s.began))
	return "", nil
}

// askParked calls Parked of the filter.
func (s *Selection) askParked(ctx context.Context) error {
	rec, began, err := s.filter.Parked(ctx)
	if err != nil {
		return err
	}
	s.asked, s.began = true, began
	if rec != nil {
		s.parked = make(map[string]*parking.Parking, len(rec.Parkings))
		for i := range rec.Parkings {
			s.parked[rec.Parkings[i].ID] = &rec.Parkings[i]
		}
	}
	return nil
}

// keepOffsets keeps the dead letters at the offsets of the filter.
func (s *Selection) keepOffsets(topic string) error {
	at := make(map[PartitionOffset]match, len(s.matches))
	for _, l := range s.matches {
		at[l.PartitionOffset] = l
	}
	s.OtherSlots, s.AlreadyResent, s.Released = 0, 0, 0 // of others than the offsets name
	places := slices.Clone(s.filter.Offsets)
	slices.SortFunc(places, PartitionOffset.compare)
	s.matches = s.matches[:0]
	for _, p := range slices.Compact(places) {
		l, ok := at[p]
		if !ok {
			return fmt.Errorf("%w at %s of topic %s: %s", ErrNotFound, p, topic, s.absenceReason(p, topic))
		}
		if l.released {
			s.Released++
			continue
		}
		s.matches = append(s.matches, l)
	}
	return nil
}

// absenceReason returns why there is no dead letter at p.
func (s *Selection) absenceReason(p PartitionOffset, topic string) string {
	if int(p.Partition) >= len(s.ranges) {
		return fmt.Sprintf("the topic has %d partitions, from 0", len(s.ranges))
	}
	offsets := s.ranges[p.Partition]
	switch {
	case p.Offset < offsets.Begin:
		return fmt.Sprintf("it has expired; partition %d starts at offset %d", p.Partition, offsets.Begin)
	case p.Offset >= offsets.End && p.Offset < offsets.Hidden:
		return offsets.Open(topic).Error()
	case offsets.End == 0:
		return fmt.Sprintf("partition %d is empty", p.Partition)
	case p.Offset >= offsets.End:
		return fmt.Sprintf("the last offset of partition %d is %d", p.Partition, offsets.End-1)
	case !s.resentAt[p].IsZero():
		return "it was resent, and has expired"
	}
	if s.filter.Slot != "" {
		return fmt.Sprintf("the record there is not a dead letter of slot %q that the filters select; --any-slot includes those of other relays", s.filter.Slot)
	}
	return "the record there is not a dead letter that the filters select"
}

// KeepNewest keeps the last n dead letters by time.
func (s *Selection) KeepNewest(n int) {
	if n >= len(s.matches) {
		return
	}
	slices.SortStableFunc(s.matches, func(a, b match) int { return cmp.Or(a.at.Compare(b.at), a.compare(b.PartitionOffset)) })
	s.matches = slices.Delete(s.matches, 0, len(s.matches)-n)
	slices.SortFunc(s.matches, func(a, b match) int { return a.compare(b.PartitionOffset) })
}

// KeepOldest keeps the first n dead letters by partition and offset.
func (s *Selection) KeepOldest(n int) { s.matches = s.matches[:min(n, len(s.matches))] }

// Read calls fn with each dead letter of a Selection, by partition and offset, except those that have expired since. fn
// may keep the dead letter. If fn returns an error, Read returns it.
func (b *Topic) Read(ctx context.Context, s *Selection, fn func(*DeadLetter) error) error {
	for _, offsets := range s.ranges {
		first, _ := slices.BinarySearchFunc(s.matches, PartitionOffset{offsets.Partition, 0}, match.compareOffset)
		last, _ := slices.BinarySearchFunc(s.matches, PartitionOffset{offsets.Partition + 1, 0}, match.compareOffset)
		wanted := s.matches[first:last]
		if len(wanted) == 0 {
			continue
		}
		offsets.Begin, offsets.End = wanted[0].Offset, wanted[len(wanted)-1].Offset+1
		err := b.reader.Read(ctx, offsets, func(stored *sink.StoredRecord) (err error) {
			for len(wanted) > 0 && wanted[0].Offset < stored.Offset {
				wanted = wanted[1:]
			}
			if len(wanted) == 0 || wanted[0].Offset != stored.Offset {
				return nil
			}
			l, ok := parseDeadLetter(stored)
			if !ok {
				return nil
			}
			l.Resent = s.resentAt[l.PartitionOffset]
			if _, err = s.findParking(ctx, l); err != nil {
				return err
			}
			return fn(l)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l match) compareOffset(p PartitionOffset) int { return l.compare(p) }
