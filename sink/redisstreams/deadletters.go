package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A deadLetters is a [sink.DeadLetters]. Operators name dead letters by their offsets, so the offset of an entry is derived
// from its id alone: see offsetOf.
type deadLetters struct {
	*client

	stream string
}

// OpenDeadLetters implements [sink.ReaderOpener].
func (c Config) OpenDeadLetters(ctx context.Context, destination string, log *slog.Logger) (sink.DeadLetters, error) {
	cl, err := c.newClient(log)
	if err != nil {
		return nil, err
	}
	d := &deadLetters{client: cl, stream: destination}
	if _, err := d.readInfo(ctx, destination); err != nil {
		return nil, errors.Join(err, cl.Close())
	}
	return d, nil
}

// OffsetRanges implements [sink.DeadLetters].
func (d *deadLetters) OffsetRanges(ctx context.Context) ([]sink.OffsetRange, error) {
	info, err := d.readInfo(ctx, d.stream)
	if err != nil {
		return nil, err
	}
	last, err := offsetOf(info.LastGeneratedID)
	offsets := sink.OffsetRange{Begin: last + 1, End: last + 1}
	if err == nil && info.Length > 0 {
		offsets.Begin, err = offsetOf(info.FirstEntry.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", d.stream, err)
	}
	return []sink.OffsetRange{offsets}, nil
}

// Read implements [sink.DeadLetters].
func (d *deadLetters) Read(ctx context.Context, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	if offsets.Begin >= offsets.End {
		return nil
	}
	return d.read(ctx, d.stream, idOf(max(offsets.Begin, 0)), idOf(offsets.End-1), func(e entry) error {
		offset, err := offsetOf(e.id)
		if err != nil {
			return fmt.Errorf("stream %s: %w", d.stream, err)
		}
		return fn(&sink.StoredRecord{Record: parseEntry(d.stream, e.fields), Offset: offset})
	})
}

const (
	timedOffset = 1 << 62 // offsets from here on are of ids whose first part is not 0
	timeBits    = 42      // of the first part
	countBits   = 20      // of the second part
)

// offsetOf returns the offset for the id of a dead letter. Dead letters have no position, so their ids are 0-1, 0-2 and so
// on, and their offsets 1, 2 and so on. If another writer has added an entry with the time as its id, the ids continue from
// there: such an offset has the milliseconds of the time and the number within them. Offsets have the order of ids, and
// idOf is the inverse.
func offsetOf(id string) (int64, error) {
	first, second, _ := strings.Cut(id, "-")
	ms, err1 := strconv.ParseUint(first, 10, 64)
	n, err2 := strconv.ParseUint(second, 10, 64)
	switch {
	case err1 != nil || err2 != nil:
	case ms == 0 && n < timedOffset:
		return int64(n), nil
	case ms > 0 && ms < 1<<timeBits && n < 1<<countBits:
		return timedOffset | int64(ms)<<countBits | int64(n), nil
	}
	return 0, fmt.Errorf("%w: entry %s is not a dead letter of a relay; use a stream for dead letters alone", errFatal, id)
}

func idOf(offset int64) string {
	if offset < timedOffset {
		return "0-" + strconv.FormatInt(offset, 10)
	}
	offset &^= timedOffset
	return strconv.FormatInt(offset>>countBits, 10) + "-" + strconv.FormatInt(offset&(1<<countBits-1), 10)
}
