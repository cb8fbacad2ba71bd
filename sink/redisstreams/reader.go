package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// pageEntries is the number of entries that one request reads.
const pageEntries = 500

// An entry is an entry of a stream: the names and values of its fields in turn.
type entry struct {
	id     string
	fields []string
}

// readInfo returns the state of a stream. The error wraps errMissing if it does not exist, and errUnusable if the key is not a
// stream.
func (c *client) readInfo(ctx context.Context, stream string) (info *redis.XInfoStream, err error) {
	err = c.retry(ctx, func(ctx context.Context) error {
		info, err = c.conns.XInfoStream(ctx, stream).Result()
		if err != nil && isReply(err) && strings.Contains(err.Error(), "no such key") {
			return errMissing
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return info, nil
}

// read calls fn for the entries of a stream between two ids, until fn returns an error.
func (c *client) read(ctx context.Context, stream, from, to string, fn func(entry) error) error {
	for {
		var page []entry
		err := c.retry(ctx, func(ctx context.Context) error {
			reply, err := c.conns.Do(ctx, "xrange", stream, from, to, "count", pageEntries).Slice()
			if err != nil {
				return err
			}
			page, err = parseEntries(reply)
			return err
		})
		if err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
		for _, e := range page {
			if err := fn(e); err != nil {
				return err
			}
		}
		if len(page) < pageEntries {
			return nil
		}
		from = "(" + page[len(page)-1].id
	}
}

var errReply = fmt.Errorf("%w: the server's response has another form than that of XRANGE", errFatal)

// parseEntries returns the entries of a response to XRANGE. The types of go-redis have no order of fields.
func parseEntries(reply []any) ([]entry, error) {
	entries := make([]entry, 0, len(reply))
	for _, item := range reply {
		parts, _ := item.([]any)
		if len(parts) != 2 {
			return nil, errReply
		}
		id, valid := parts[0].(string)
		values, isList := parts[1].([]any)
		e := entry{id: id, fields: make([]string, len(values))}
		for i, v := range values {
			var isText bool
			e.fields[i], isText = v.(string)
			valid = valid && isText
		}
		if !valid || !isList {
			return nil, errReply
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// A reader is a [sink.Reader] and a [sink.PositionReader]. An id has 128 bits, and an offset 64. So the offset of an entry
// is its number among those that the stream had when OffsetRanges was called last, from 0. If entries are removed meanwhile, the
// numbers of later ones decrease. Read returns none that was added after OffsetRanges.
type reader struct {
	*client

	seen map[string]snapshot // by stream
}

// A snapshot is the entries of a stream at one time.
type snapshot struct{ first, last string }

var _ sink.ReaderOpener = Config{}

// OpenReader implements [sink.ReaderOpener].
func (c Config) OpenReader(log *slog.Logger) (sink.Reader, error) {
	cl, err := c.newClient(log)
	if err != nil {
		return nil, err
	}
	return &reader{client: cl, seen: make(map[string]snapshot)}, nil
}

// OffsetRanges implements [sink.Reader]. A destination is one partition. A key that is not a stream has no records.
func (r *reader) OffsetRanges(ctx context.Context, destinations ...string) (map[string][]sink.OffsetRange, error) {
	ranges := make(map[string][]sink.OffsetRange)
	for _, name := range destinations {
		info, err := r.readInfo(ctx, name)
		switch {
		case errors.Is(err, errMissing):
		case errors.Is(err, errUnusable):
			ranges[name] = []sink.OffsetRange{{}}
		case err != nil:
			return nil, err
		default:
			r.seen[name] = snapshot{info.FirstEntry.ID, info.LastGeneratedID}
			ranges[name] = []sink.OffsetRange{{End: info.Length}}
		}
	}
	return ranges, nil
}

var errEnd = errors.New("the end of the range")

// Read implements [sink.Reader].
func (r *reader) Read(ctx context.Context, destination string, offsets sink.OffsetRange, fn func(*sink.StoredRecord) error) error {
	if offsets.Begin >= offsets.End {
		return nil
	}
	if _, ok := r.seen[destination]; !ok {
		if _, err := r.OffsetRanges(ctx, destination); err != nil {
			return err
		}
	}
	seen := r.seen[destination]
	if seen.first == "" {
		return nil
	}
	next := int64(0)
	err := r.read(ctx, destination, seen.first, seen.last, func(e entry) error {
		at := next
		next++
		switch {
		case at < offsets.Begin:
			return nil
		case at >= offsets.End:
			return errEnd
		}
		return fn(&sink.StoredRecord{Record: parseEntry(destination, e.fields), Offset: at})
	})
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}
