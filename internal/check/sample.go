package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// sampleRows is the number of last rows of each table that a check reads, and maxTopics the maximum number of their
// topics that it checks.
const (
	sampleRows = 100
	maxTopics  = 50
)

// A sample describes the records of the last rows of the tables.
type sample struct {
	taken  bool // rows were found
	topics map[string]*topicSample
}

// A topicSample describes the records of one topic.
type topicSample struct {
	largest *sink.Record // the one with the largest size; nil: no record was read
	keyless int          // records without a key
}

// takeSample converts the last rows to records. The sink's conditions need their topics and sizes. A row that cannot
// become a record is a condition of the source.
func (ck *checker) takeSample(ctx context.Context) {
	defer close(ck.sampled)
	ck.rows.group = Source
	ck.sample.topics = make(map[string]*topicSample)
	if topic := ck.Relay.Route.FixedTopic(); topic != "" {
		ck.sample.topics[topic] = &topicSample{}
	}
	if ck.short {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ck.limits.Request)
	defer cancel()
	for _, table := range ck.Relay.Tables {
		ck.sampleTable(ctx, table)
	}
}

func (ck *checker) sampleTable(ctx context.Context, table string) {
	const name = "rows"
	var records, refused int
	var first error
	err := rows.Sample(ctx, ck.Relay.Rows(), table, sampleRows, func(rec *sink.Record, err error) bool {
		if err != nil {
			first = cmp.Or(first, err)
			refused++
			return true
		}
		records++
		ck.sample.add(rec)
		return true
	})
	const insufficientPrivilege = "42501"
	pg, refusedToRead := errors.AsType[*pgconn.PgError](err)
	switch {
	case refusedToRead && pg.Code == insufficientPrivilege:
		ck.rows.ok(name, table, "not read, because the role lacks SELECT, or USAGE on the schema; topics, keys and sizes are taken from the configuration")
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		ck.rows.warn(name, table, fmt.Sprintf("not read within %s; topics, keys and sizes are taken from the configuration", ck.limits.Request), "run check with a longer --timeout")
	case err != nil: // the conditions of the connection, the table or its columns have it
	case refused > 0:
		ck.rows.warn(name, table, fmt.Sprintf("%[2]d of the last %[1]d rows cannot become records: %[3]v", records+refused, refused, first),
			"fix the writer; with this on_bad_record, such a row "+ck.badRow())
	case records == 0:
		ck.rows.ok(name, table, "the table is empty")
	default:
		ck.rows.ok(name, table, fmt.Sprintf("the last %d rows can become records", records))
	}
	ck.sample.taken = ck.sample.taken || records > 0
}

// badRow returns what run does with a row that cannot become a record.
func (ck *checker) badRow() string {
	switch {
	case ck.Relay.ParkedKeys > 0:
		return "becomes a dead letter, and parks its key: later records of the key wait until it is released"
	case ck.Relay.DeadLetterTopic != "":
		return "becomes a dead letter"
	}
	return "stops the relay"
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
	if t.largest == nil || rec.Size() > t.largest.Size() {
		clone := rows.Clone(*rec)
		t.largest = &clone
	}
	if rec.Key == nil {
		t.keyless++
	}
}

// names returns the topics in alphabetical order.
func (s *sample) names() []string { return slices.Sorted(maps.Keys(s.topics)) }
