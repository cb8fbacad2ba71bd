package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

func testPlan() plan { return plan{rows: 250, keys: 20, topics: 3, payload: 201, dust: newDust()} }

// record is the record of a row.
type record struct {
	topic      string
	key, value []byte
}

// takeAll passes records with increasing offsets of one partition to the checker. It returns the row of each record
// that is not a duplicate.
func takeAll(c *checker, records ...record) (rows []int) {
	for i, r := range records {
		rows = append(rows, c.take(delivery.Coordinates{Topic: r.topic, Offset: int64(i)}, r.key, r.value))
	}
	return rows
}

func (p plan) record(row int) record {
	key := p.key(row)
	return record{"x." + AggregateType(key%p.topics), []byte(aggregateID(key)), p.appendPayload(nil, row)}
}

func TestPayloads(t *testing.T) {
	for _, size := range []int{MinPayloadBytes, 200, 201, 1000, maxPayloadBytes} {
		p := testPlan()
		p.payload, p.keys, p.rows = size, 12345, maxRows
		for _, row := range []int{0, 9, 12344, 12345, 999_999, maxRows - 1} {
			text := p.appendPayload(nil, row)
			if len(text) > size || len(text) < size-1 {
				t.Errorf("payload of row %d has %d bytes, want %d", row, len(text), size)
			}
			if !json.Valid(text) {
				t.Errorf("payload of row %d is not JSON: %.100s", row, text)
			}
			if key, number, ok := p.readPayload(text); !ok || p.row(key, number) != row {
				t.Errorf("payload of row %d is read as key %d, number %d, %t", row, key, number, ok)
			}
		}
	}
}

func TestContentsDoNotRepeatWithinABatch(t *testing.T) {
	p := testPlan()
	p.rows = 20_000
	all := make(map[string]bool)
	for row := range p.rows {
		content := p.content(row, p.room(p.key(row), p.number(row)))
		if all[string(content[:16])] {
			t.Fatalf("the content of row %d is not unique", row)
		}
		all[string(content[:16])] = true
	}
}

func TestCheckerAcceptsEveryRowOnce(t *testing.T) {
	p := testPlan()
	c := newChecker(p, []string{"x.t0", "x.t1", "x.t2"})
	if v := c.verdict(); v.Lost != p.rows {
		t.Fatalf("before the first record: %+v", v)
	}
	var rows []int
	var records []record
	for topic := range p.topics { // only the order per key counts
		for row := range p.rows {
			if p.key(row)%p.topics == topic {
				rows, records = append(rows, row), append(records, p.record(row))
			}
		}
	}
	if diff := cmp.Diff(rows, takeAll(c, records...)); diff != "" {
		t.Errorf("records are matched to other rows (-want +got):\n%s", diff)
	}
	if v := c.verdict(); !v.Good() {
		t.Errorf("%+v", v)
	}
}

func TestCheckerFindsWhatIsWrong(t *testing.T) {
	p := testPlan()
	for name, c := range map[string]struct {
		disturb func(rows []record) []record
		want    Verdict
	}{
		"lost":      {func(r []record) []record { return append(r[:100], r[102:]...) }, Verdict{Lost: 2}},
		"lost last": {func(r []record) []record { return r[:249] }, Verdict{Lost: 1}},
		"twice":     {func(r []record) []record { return append(r, r[3], r[3]) }, Verdict{Duplicates: 2}},
		"again from some row on": {
			func(r []record) []record { return append(r[:200:200], r[150:]...) }, Verdict{Duplicates: 50},
		},
		"a key's events swapped": {func(r []record) []record {
			r[105], r[125] = r[125], r[105]
			return r
		}, Verdict{OutOfOrder: 1}},
		"a key's event much too late": {func(r []record) []record { return append(append(r[:5:5], r[6:]...), r[5]) }, Verdict{OutOfOrder: 1}},
		"another key": {func(r []record) []record {
			r[7].key = []byte("8")
			return r
		}, Verdict{Lost: 1, Altered: 1}},
		"no key": {func(r []record) []record {
			r[7].key = nil
			return r
		}, Verdict{Lost: 1, Altered: 1}},
		"another topic": {func(r []record) []record {
			r[7].topic = "x.t0"
			return r
		}, Verdict{Lost: 1, Altered: 1}},
		"somebody else's topic": {func(r []record) []record {
			r[7].topic = "y.t1"
			return r
		}, Verdict{Lost: 1, Altered: 1}},
		"tombstone": {func(r []record) []record {
			r[7].value = nil
			return r
		}, Verdict{Lost: 1, Altered: 1}},
		"more than was written": {func(r []record) []record {
			more := p
			more.rows++
			return append(r, more.record(p.rows))
		}, Verdict{Altered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []record
			for row := range p.rows {
				rows = append(rows, p.record(row))
			}
			checker := newChecker(p, []string{"x.t0", "x.t1", "x.t2"})
			takeAll(checker, c.disturb(rows)...)
			if got := checker.verdict(); got != c.want || got.Good() {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestCheckerFindsEveryChangedByte(t *testing.T) {
	p := testPlan()
	row := 123
	good := p.record(row)
	for i := range good.value {
		bad := good
		bad.value = bytes.Clone(good.value)
		bad.value[i] ^= 1
		c := newChecker(p, []string{"x.t0", "x.t1", "x.t2"})
		if got := takeAll(c, bad); got[0] == row || c.verdict().Altered != 1 {
			t.Errorf("byte %d changed: %s is matched to row %d", i, bad.value, got)
		}
	}
	for _, bad := range [][]byte{good.value[:len(good.value)-1], append(bytes.Clone(good.value), ' '), bytes.ReplaceAll(good.value, []byte(": "), []byte(":"))} {
		if got := takeAll(newChecker(p, []string{"x.t0", "x.t1", "x.t2"}), record{good.topic, good.key, bad}); got[0] >= 0 {
			t.Errorf("%s is matched to row %d", bad, got)
		}
	}
}

func TestNumbersOfAPayloadAreShort(t *testing.T) {
	for _, text := range []string{"", "x", "007", "-1", "+1"} {
		if n, rest, ok := cutNumber([]byte(text)); ok && len(rest) == 0 {
			t.Errorf("%q is read as %d", text, n)
		}
	}
	for _, n := range []int{0, 7, 10, 99, 100, maxRows} {
		if got, rest, ok := cutNumber(fmt.Appendf(nil, "%d,", n)); !ok || got != n || string(rest) != "," || digits(n) != len(fmt.Sprint(n)) {
			t.Errorf("%d is read as %d, %q, %t, of %d digits", n, got, rest, ok, digits(n))
		}
	}
}

func BenchmarkChecker(b *testing.B) {
	p := testPlan()
	p.rows = 100_000
	var rows []record
	for row := range p.rows {
		rows = append(rows, p.record(row))
	}
	b.ReportAllocs()
	c := newChecker(p, []string{"x.t0", "x.t1", "x.t2"})
	for i := 0; b.Loop(); i++ {
		r := &rows[i%len(rows)]
		c.take(delivery.Coordinates{Topic: r.topic, Offset: int64(i)}, r.key, r.value)
	}
}
