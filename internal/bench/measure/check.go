package measure

import (
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// A Verdict is the result of checking the records. Only the zero value is good.
type Verdict struct {
	Lost       int // rows without a record
	Duplicates int // repeated records of a row
	OutOfOrder int // records after a later one of their key, or in another partition
	Altered    int // records whose key, topic or payload does not match a row
}

// Good reports whether every row arrived once, in order and unchanged.
func (v Verdict) Good() bool { return v == Verdict{} }

// A plan defines the rows: row i is event i / keys of key i % keys, and belongs to the topic of its
// key.
type plan struct {
	rows, keys, topics int
	payload            int // bytes
	*dust
}

func (p plan) key(row int) int    { return row % p.keys }
func (p plan) number(row int) int { return row / p.keys }

func (p plan) row(key, number int) int { return number*p.keys + key }

// AggregateType returns the aggregate type for the number of a destination.
func AggregateType(topic int) string { return "t" + strconv.Itoa(topic) }

// aggregateID returns the aggregate id for key.
func aggregateID(key int) string { return strconv.Itoa(key) }

// A checker compares records with a plan, in the order they were consumed.
type checker struct {
	plan
	*delivery.Checker

	topic []string // by number
	id    []string // of the aggregates
}

func newChecker(p plan, topics []string) *checker {
	c := &checker{plan: p, Checker: delivery.New(delivery.Config{}), topic: topics, id: make([]string, p.keys)}
	for i := range c.id {
		c.id[i] = aggregateID(i)
	}
	return c
}

// take checks a record. It returns the row if the record is the first one of that row, otherwise -1.
func (c *checker) take(where delivery.Coordinates, key, value []byte) (row int) {
	r := delivery.Record{Coordinates: where, Key: key}
	k, n, ok := c.readPayload(value)
	if !ok {
		r.Damage = "its payload is no row's"
		c.Record(&r, nil)
		return -1
	}
	if !c.Record(&r, &delivery.Event{Aggregate: c.id[k], Seq: int64(n) + 1, Topic: c.topic[k%c.topics], Key: c.id[k]}).First() {
		return -1
	}
	return c.row(k, n)
}

// verdict returns the verdict so far.
func (c *checker) verdict() Verdict {
	n := c.Counts()
	return Verdict{Lost: c.rows - n.Events, Duplicates: n.Duplicates, OutOfOrder: n.OutOfOrder + n.Misplaced, Altered: n.Altered}
}
