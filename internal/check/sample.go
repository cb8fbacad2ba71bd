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

// sampleRows is the number of last rows of each table that a check reads, and maxDestinations the maximum number
// of their destinations that it checks.
const (
	sampleRows      = 100
	maxDestinations = 50
)

// A sample describes the records of the last rows of the tables, by destination.
type sample map[string]*sink.Destination

// takeSample converts the last rows to records. The sink's conditions need their destinations and sizes. A row that cannot
// become a record is a condition of the source.
func (ck *checker) takeSample(ctx context.Context) {
	defer close(ck.sampled)
	ck.rows.group = Source
	ck.sample, ck.sampleFix = make(sample), "run check again when the table has rows"
	if topic := ck.Relay.Route.FixedTopic(); topic != "" {
		ck.sample[topic] = &sink.Destination{Name: topic}
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
		ck.sampleFix = "run check with a role that may read the table: --dsn \"$OPERATOR_DSN\""
		ck.rows.ok(name, table, "not read, because the role lacks SELECT, or USAGE on the schema; topics, keys and sizes are taken from the configuration")
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		ck.rows.warn(name, table, fmt.Sprintf("not read within %s; topics, keys and sizes are taken from the configuration", ck.limits.Request), "run check with a longer --timeout")
	case err != nil: // the conditions of the connection, the table or its columns have it
		ck.sampleFix = "run check again when the conditions of the source are met"
	case refused > 0:
		ck.rows.warn(name, table, fmt.Sprintf("%[2]d of the last %[1]d rows cannot become records: %[3]v", records+refused, refused, first),
			"fix the writer; with this on_bad_record, such a row "+ck.badRow())
	case records == 0:
		ck.rows.ok(name, table, "the table is empty")
	default:
		ck.rows.ok(name, table, fmt.Sprintf("the last %d rows can become records", records))
	}
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

func (s sample) add(rec *sink.Record) {
	d := s[rec.Topic]
	if d == nil && len(s) >= maxDestinations {
		return
	}
	if d == nil {
		d = &sink.Destination{Name: rec.Topic}
		s[rec.Topic] = d
	}
	if d.Largest == nil || rec.Size() > d.Largest.Size() {
		clone := rows.Clone(*rec)
		d.Largest = &clone
	}
	if rec.Key == nil {
		d.Keyless++
	}
}

// destinations returns the destinations in alphabetical order.
func (s sample) destinations() []sink.Destination {
	var all []sink.Destination
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all = append(all, *s[name])
	}
	return all
}
