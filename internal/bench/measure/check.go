package measure

import (
	"strconv"
	"strings"
)

// A Verdict is what the consumer found. Its zero value is the only good one.
type Verdict struct {
	Lost       int // rows without a record
	Duplicates int // records of a row that came before
	OutOfOrder int // records that came after a later one of their key
	Altered    int // records whose key, topic or payload is no row's
}

// Good reports whether everything arrived once, in order and unchanged.
func (v Verdict) Good() bool { return v == Verdict{} }

// A plan says which rows there are: row i is event i / keys of key i % keys, and belongs to the
// topic of its key.
type plan struct {
	rows, keys, topics int
	payload            int // bytes
	*dust
}

func (p plan) key(row int) int    { return row % p.keys }
func (p plan) number(row int) int { return row / p.keys }

func (p plan) row(key, number int) int { return number*p.keys + key }

// aggregateType returns the name of the topic-th kind of aggregate, without the topics' prefix.
func aggregateType(topic int) string { return "t" + strconv.Itoa(topic) }

// aggregateID returns key as it is in the table.
func aggregateID(key int) string { return strconv.Itoa(key) }

// A checker compares records with a plan, in the order they were consumed. It is for one goroutine.
type checker struct {
	plan
	prefix string // of the topics

	seen   []uint64 // a bit per row
	latest []int32  // per key: 1 + the highest number seen
	missed int      // rows not seen
	found  Verdict  // without Lost
}

func newChecker(p plan, prefix string) *checker {
	return &checker{
		plan: p, prefix: prefix, missed: p.rows,
		seen: make([]uint64, (p.rows+63)/64), latest: make([]int32, p.keys),
	}
}

// take enters a record. It returns the row it is the first record of, or -1.
func (c *checker) take(topic string, key, value []byte) (row int) {
	k, n, ok := c.readPayload(value)
	if !ok || !c.belongs(k, key, topic) {
		c.found.Altered++
		return -1
	}
	row = c.row(k, n)
	word, bit := row/64, uint64(1)<<(row%64)
	if c.seen[word]&bit != 0 {
		c.found.Duplicates++
		return -1
	}
	c.seen[word] |= bit
	c.missed--
	if n < int(c.latest[k]) {
		c.found.OutOfOrder++
	} else {
		c.latest[k] = int32(n) + 1
	}
	return row
}

// belongs reports whether a record of k has this key and is in this topic.
func (c *checker) belongs(k int, key []byte, topic string) bool {
	number, rest, ok := cutNumber(key)
	if !ok || len(rest) > 0 || number != k {
		return false
	}
	suffix, ok := strings.CutPrefix(topic, c.prefix)
	if !ok || len(suffix) < 2 || suffix[0] != 't' {
		return false
	}
	number, err := strconv.Atoi(suffix[1:])
	return err == nil && number == k%c.topics
}

// verdict returns what is known now.
func (c *checker) verdict() Verdict {
	v := c.found
	v.Lost = c.missed
	return v
}
