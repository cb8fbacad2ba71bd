package rig

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

// An Event is one outbox row, known by its key and its number within the key: all other
// parts follow from these two, so a reader can tell what a record must look like.
//
// A key is written by one goroutine only, which gives the number n+1 to the event it
// writes after n is committed, and n again if that was rolled back. So the numbers of a
// key, in commit order, are 0, 1, 2, … without a gap.
type Event struct {
	Key    string
	Number int
}

// What the rows of the workload have in their columns.
const (
	aggregateType = "order"
	eventType     = "OrderChanged"
	PhantomType   = "RolledBack" // written only where a rollback follows
)

// ID returns the row's id.
func (e Event) ID() uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(e.Key+"/"+strconv.Itoa(e.Number)))
}

// payload is what the writer inserts and, since its members are in jsonb's order and
// spacing, also what Postgres prints.
func (e Event) payload() []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", e.Key, e.Number)
	pad := strings.Repeat("é0", int(h.Sum32()%100))
	return fmt.Appendf(nil, `{"k": "%s", "n": %d, "big": 12345678901234567890.%d0, "pad": "%s"}`, e.Key, e.Number, e.Number, pad)
}

// A received record, as much of it as is checked. Its slices are valid during the call only.
type received struct {
	topic     string
	key       []byte
	value     []byte
	id        []byte // header
	eventType []byte // header
	partition int32
	timestamp time.Time
}

// A Ledger checks records as they come: it keeps, per key, the number that must come next.
// It is safe for use from several goroutines.
type Ledger struct {
	topic string
	Moves bool // keys may change their partition

	mu         sync.Mutex
	keys       map[string]*account
	records    int
	duplicates int
	problems   []string // the first few
	broken     int      // how many problems in all
}

type account struct {
	next      int // the number whose first appearance comes next
	last      int // the number that came last
	partition int32
}

// NewLedger returns an empty ledger of the records of a topic.
func NewLedger(topic string) *Ledger {
	return &Ledger{topic: topic, keys: map[string]*account{}}
}

func (l *Ledger) problem(format string, args ...any) {
	l.broken++
	if len(l.problems) < 10 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// record checks one record against what its key and number demand.
func (l *Ledger) record(r received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records++
	e := Event{Key: string(r.key), Number: NumberOf(r.value)}
	a := l.keys[e.Key]
	if a == nil {
		a = &account{partition: r.partition}
		l.keys[e.Key] = a
	}
	switch {
	case string(r.eventType) == PhantomType:
		l.problem("phantom: %v was rolled back", e)
	case e.Number > a.next:
		l.problem("gap: %v came, but %d was to come next", e, a.next)
		a.next = e.Number + 1
	case e.Number == a.next:
		a.next++
	default:
		l.duplicates++
	}
	a.last = e.Number
	if r.partition != a.partition && !l.Moves {
		l.problem("%v is in partition %d, earlier ones are in %d", e, r.partition, a.partition)
	}
	if string(r.eventType) != eventType && string(r.eventType) != PhantomType || r.topic != l.topic ||
		!bytes.Equal(r.value, e.payload()) || string(r.id) != e.ID().String() {
		l.problem("altered: %v: topic %s, id %s, type %s, value %.100s", e, r.topic, r.id, r.eventType, r.value)
	}
	if r.timestamp.After(time.Now().Add(time.Second)) || time.Since(r.timestamp) > time.Hour {
		l.problem("%v has the timestamp %v", e, r.timestamp)
	}
}

// NumberOf reads the member n of a payload; -1 if there is none.
func NumberOf(value []byte) int {
	_, rest, ok := bytes.Cut(value, []byte(`"n": `))
	digits, _, ok2 := bytes.Cut(rest, []byte(","))
	n, err := strconv.Atoi(string(digits))
	if !ok || !ok2 || err != nil {
		return -1
	}
	return n
}

// Seen returns how many records and repetitions there were, and whether every key has
// reached what was committed.
func (l *Ledger) Seen(committed map[string]int) (records, duplicates int, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	complete = true
	for key, n := range committed {
		if a := l.keys[key]; n > 0 && (a == nil || a.next < n) {
			complete = false
			break
		}
	}
	return l.records, l.duplicates, complete
}

// Delivered returns how many events of every key have appeared.
func (l *Ledger) Delivered() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int, len(l.keys))
	for key, a := range l.keys {
		all[key] = a.next
	}
	return all
}

// Check fails the test for everything that is not as committed says.
func (l *Ledger) Check(t *testing.T, committed map[string]int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.keys {
		if a.next > committed[key] {
			l.problem("phantom: %s has %d events, %d were committed", key, a.next, committed[key])
		}
		if a.last != a.next-1 && !l.Moves { // the last one is what a compacted topic keeps
			l.problem("stale: the last record of %s is number %d of %d", key, a.last, a.next-1)
		}
	}
	for key, n := range committed {
		if a := l.keys[key]; n > 0 && (a == nil || a.next < n) {
			l.problem("lost: %s has %d events, of which came: %+v", key, n, a)
		}
	}
	if l.broken > 0 {
		t.Errorf("%d problems in %d records, the first of them:\n%s", l.broken, l.records, strings.Join(l.problems, "\n"))
	}
}
