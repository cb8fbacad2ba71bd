package rig

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// An Event is an outbox row, identified by its key and its number within the key. These two determine
// all other columns, so the test knows the content of the record.
//
// One goroutine writes all events of a key. After event n it writes n+1 if n was committed, and
// n again if n was rolled back. So the numbers of a key, in commit order, are 0, 1, 2, … without
// gaps.
type Event struct {
	Key    string
	Number int
}

// Column values of the workload's rows.
const (
	aggregateType = "order"
	eventType     = "OrderChanged"
	PhantomType   = "RolledBack" // of events whose transaction or savepoint is rolled back
)

// ID returns the row's id.
func (e Event) ID() uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(e.Key+"/"+strconv.Itoa(e.Number)))
}

// payload returns the payload that the writer inserts. It has the order of members and the spacing of
// jsonb, so that Postgres prints the same bytes.
func (e Event) payload() []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", e.Key, e.Number)
	pad := strings.Repeat("é0", int(h.Sum32()%100))
	return fmt.Appendf(nil, `{"k": "%s", "n": %d, "big": 12345678901234567890.%d0, "pad": "%s"}`, e.Key, e.Number, e.Number, pad)
}

// NumberOf returns the member n of a payload, or -1 if there is none.
func NumberOf(value []byte) int {
	_, rest, ok := bytes.Cut(value, []byte(`"n": `))
	digits, _, ok2 := bytes.Cut(rest, []byte(","))
	n, err := strconv.Atoi(string(digits))
	if !ok || !ok2 || err != nil {
		return -1
	}
	return n
}

// A Ledger checks each record of a topic when it arrives.
type Ledger struct {
	*delivery.Checker
	topic string
}

// NewLedger returns an empty ledger for the records of a topic.
func NewLedger(topic string, cfg delivery.Config) *Ledger {
	return &Ledger{Checker: delivery.New(cfg), topic: topic}
}

// take checks one record of Kafka.
func (l *Ledger) take(rec *kgo.Record) {
	l.check(delivery.Coordinates{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset},
		&Received{Key: rec.Key, Value: rec.Value, ID: Header(rec, "id"), Type: Header(rec, "eventType"), Timestamp: rec.Timestamp})
}

// takeReceived checks one record of another broker. The Checker compares the destination with the template, so a record
// has that.
func (l *Ledger) takeReceived(rec *Received) {
	l.check(delivery.Coordinates{Topic: l.topic, Offset: rec.Offset}, rec)
}

// maxAhead is how far ahead of its arrival the timestamp of a record may be: the relay sends a commit time that is up to a minute ahead
// of its own clock as it is.
const maxAhead = time.Minute + time.Second

func (l *Ledger) check(at delivery.Coordinates, rec *Received) {
	r := &delivery.Record{
		Coordinates: at, Key: rec.Key, Value: rec.Value,
		Headers: []delivery.Header{{Key: "id", Value: rec.ID}, {Key: "eventType", Value: rec.Type}},
	}
	if !rec.Timestamp.IsZero() && (rec.Timestamp.After(time.Now().Add(maxAhead)) || time.Since(rec.Timestamp) > time.Hour) {
		r.Damage = "it has the timestamp " + rec.Timestamp.String()
	}
	e := Event{Key: string(rec.Key), Number: NumberOf(rec.Value)}
	if e.Number < 0 {
		r.Damage = "its payload is no event's"
		l.Record(r, nil)
		return
	}
	want := &delivery.Event{
		Aggregate: e.Key, Seq: int64(e.Number) + 1, Fate: delivery.InDoubt,
		Topic: l.topic, Key: e.Key, Value: string(e.payload()),
		Headers: []delivery.Header{{Key: "id", Value: e.ID().String()}, {Key: "eventType", Value: eventType}},
	}
	if r.Headers[1].Value == PhantomType {
		want.Fate = delivery.RolledBack
	}
	l.Record(r, want)
}

// complete reports whether the records of every key include all committed events.
func (l *Ledger) complete(committed map[string]int) bool {
	for key, n := range committed {
		if l.Delivered(key) < int64(n) {
			return false
		}
	}
	return true
}

// Check fails the test if the records differ from the committed events. committed is the number of
// committed events per key, duplicates the maximum number of duplicates.
func (l *Ledger) Check(t *testing.T, committed map[string]int, duplicates int) {
	t.Helper()
	if found := l.Finish(delivery.UpTo(committed), duplicates); found.All > 0 {
		t.Errorf("%+v, %s", l.Counts(), found)
	}
}
