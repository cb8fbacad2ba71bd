package test

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

// An event is one outbox row, known by its key and its number within the key: all other
// parts follow from these two, so a reader can tell what a record must look like.
//
// A key is written by one goroutine only, which gives the number n+1 to the event it
// writes after n is committed, and n again if that was rolled back. So the numbers of a
// key, in commit order, are 0, 1, 2, … without a gap.
type event struct {
	key    string
	number int
}

const (
	aggregateType = "order"
	eventType     = "OrderChanged"
	phantomType   = "RolledBack" // written only where a rollback follows
)

func (e event) id() uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(e.key+"/"+strconv.Itoa(e.number)))
}

// payload is what the writer inserts and, since its members are in jsonb's order and
// spacing, also what Postgres prints.
func (e event) payload() []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", e.key, e.number)
	pad := strings.Repeat("é0", int(h.Sum32()%100))
	return fmt.Appendf(nil, `{"k": "%s", "n": %d, "big": 12345678901234567890.%d0, "pad": "%s"}`, e.key, e.number, e.number, pad)
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

// A ledger checks records as they come: it keeps, per key, the number that must come next.
// It is safe for use from several goroutines.
type ledger struct {
	topic string
	moves bool // keys may change their partition

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

func newLedger(topic string) *ledger {
	return &ledger{topic: topic, keys: map[string]*account{}}
}

func (l *ledger) problem(format string, args ...any) {
	l.broken++
	if len(l.problems) < 10 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// record checks one record against what its key and number demand.
func (l *ledger) record(r received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records++
	e := event{key: string(r.key), number: numberOf(r.value)}
	a := l.keys[e.key]
	if a == nil {
		a = &account{partition: r.partition}
		l.keys[e.key] = a
	}
	switch {
	case string(r.eventType) == phantomType:
		l.problem("phantom: %v was rolled back", e)
	case e.number > a.next:
		l.problem("gap: %v came, but %d was to come next", e, a.next)
		a.next = e.number + 1
	case e.number == a.next:
		a.next++
	default:
		l.duplicates++
	}
	a.last = e.number
	if r.partition != a.partition && !l.moves {
		l.problem("%v is in partition %d, earlier ones are in %d", e, r.partition, a.partition)
	}
	if string(r.eventType) != eventType && string(r.eventType) != phantomType || r.topic != l.topic ||
		!bytes.Equal(r.value, e.payload()) || string(r.id) != e.id().String() {
		l.problem("altered: %v: topic %s, id %s, type %s, value %.100s", e, r.topic, r.id, r.eventType, r.value)
	}
	if r.timestamp.After(time.Now().Add(time.Second)) || time.Since(r.timestamp) > time.Hour {
		l.problem("%v has the timestamp %v", e, r.timestamp)
	}
}

// numberOf reads the member n of a payload; -1 if there is none.
func numberOf(value []byte) int {
	_, rest, ok := bytes.Cut(value, []byte(`"n": `))
	digits, _, ok2 := bytes.Cut(rest, []byte(","))
	n, err := strconv.Atoi(string(digits))
	if !ok || !ok2 || err != nil {
		return -1
	}
	return n
}

// seen returns how many records and repetitions there were, and whether every key has
// reached what was committed.
func (l *ledger) seen(committed map[string]int) (records, duplicates int, complete bool) {
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

// check fails the test for everything that is not as committed says.
func (l *ledger) check(t *testing.T, committed map[string]int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, a := range l.keys {
		if a.next > committed[key] {
			l.problem("phantom: %s has %d events, %d were committed", key, a.next, committed[key])
		}
		if a.last != a.next-1 && !l.moves { // the last one is what a compacted topic keeps
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

// The checker must notice what it is there for.
func TestLedgerNotices(t *testing.T) {
	const topic = "outbox.event.order"
	good := func(key string, n int) received {
		e := event{key, n}
		return received{topic: topic, key: []byte(key), value: e.payload(), id: []byte(e.id().String()), eventType: []byte(eventType), timestamp: time.Now()}
	}
	for name, tc := range map[string]struct {
		records func() []received
		broken  bool
	}{
		"nothing wrong": {records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2)} }},
		"a duplicate": {records: func() []received {
			return []received{good("a", 0), good("a", 0), good("b", 0), good("a", 1), good("a", 2)}
		}},
		"lost at the end":    {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 1)} }},
		"lost in the middle": {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 2)} }},
		"swapped":            {broken: true, records: func() []received { return []received{good("a", 0), good("b", 0), good("a", 2), good("a", 1)} }},
		"one too many": {broken: true, records: func() []received {
			return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 3)}
		}},
		"an old one last": {broken: true, records: func() []received {
			return []received{good("a", 0), good("b", 0), good("a", 1), good("a", 2), good("a", 1)}
		}},
		"a byte altered": {broken: true, records: func() []received {
			r := good("b", 0)
			r.value[len(r.value)-3] ^= 1
			return []received{good("a", 0), r, good("a", 1), good("a", 2)}
		}},
		"another partition": {broken: true, records: func() []received {
			r := good("a", 1)
			r.partition = 1
			return []received{good("a", 0), good("b", 0), r, good("a", 2)}
		}},
		"rolled back": {broken: true, records: func() []received {
			r := good("a", 1)
			r.eventType = []byte(phantomType)
			return []received{good("a", 0), good("b", 0), r, good("a", 1), good("a", 2)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(topic)
			for _, r := range tc.records() {
				l.record(r)
			}
			probe := &testing.T{}
			l.check(probe, map[string]int{"a": 3, "b": 1})
			if probe.Failed() != tc.broken {
				t.Errorf("failed: %v, want %v: %v", probe.Failed(), tc.broken, l.problems)
			}
		})
	}
}
