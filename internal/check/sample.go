package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sampleRows is how many of the last rows of each table are looked at, and maxTopics how many of
// the topics they go to.
const (
	sampleRows = 100
	maxTopics  = 50
)

// A sample is what the last rows of the tables tell about the records to come.
type sample struct {
	taken  bool // rows were found
	topics map[string]*topicSample
}

// A topicSample is about the records of one topic.
type topicSample struct {
	largest int // bytes, as a batch of its own
	keyless int // records without a key
}

// takeSample makes records of the last rows. What they tell is for the sink's side; a row that
// cannot become one is a condition of the source's.
func (l *look) takeSample(ctx context.Context) {
	defer close(l.sampled)
	l.rows.group = Source
	l.sample.topics = make(map[string]*topicSample)
	if topic := l.Relay.Route.FixedTopic(); topic != "" {
		l.sample.topics[topic] = &topicSample{}
	}
	if l.short {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.each)
	defer cancel()
	for _, table := range l.Relay.Tables {
		l.sampleTable(ctx, table)
	}
}

func (l *look) sampleTable(ctx context.Context, table string) {
	const name = "rows"
	var records, refused int
	var first error
	err := relay.Sample(ctx, l.Relay, table, sampleRows, func(rec *sink.Record, err error) bool {
		if err != nil {
			first = cmp.Or(first, err)
			refused++
			return true
		}
		records++
		l.sample.add(rec)
		return true
	})
	const insufficientPrivilege = "42501"
	pg, refusedToRead := errors.AsType[*pgconn.PgError](err)
	switch {
	case refusedToRead && pg.Code == insufficientPrivilege:
		l.rows.ok(name, table, "not read, which takes SELECT; topics, keys and sizes are judged by the configuration alone")
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		l.rows.warn(name, table, fmt.Sprintf("not read in %s; topics, keys and sizes are judged by the configuration alone", l.each), "--timeout allows it more")
	case err != nil: // it is said of the connection, the table or its columns
	case refused > 0:
		l.rows.warn(name, table, fmt.Sprintf("of the last %d rows %d cannot become records: %v", records+refused, refused, first),
			"correct what writes them; a new one like it stops the relay, or with on_bad_record: dead-letter is put aside")
	case records == 0:
		l.rows.ok(name, table, "there are none to look at")
	default:
		l.rows.ok(name, table, fmt.Sprintf("the last %d would become records", records))
	}
	l.sample.taken = l.sample.taken || records > 0
}

func (s *sample) add(rec *sink.Record) {
	t := s.topics[rec.Topic]
	if t == nil && len(s.topics) >= maxTopics {
		return
	}
	if t == nil {
		t = &topicSample{}
		s.topics[rec.Topic] = t
	}
	t.largest = max(t.largest, sizeInKafka(rec))
	if rec.Key == nil {
		t.keyless++
	}
}

// names returns the topics in their order.
func (s *sample) names() []string { return slices.Sorted(maps.Keys(s.topics)) }
