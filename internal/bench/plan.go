package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
)

// A plan is what is measured, in this order.
type plan struct {
	warmUp  time.Duration // uncounted drains for so long before anything else, but at least one
	drains  []drainCase
	over    Spread        // of everything but the drains
	rates   []int         // of latency measurements: transactions of one row per second
	flow    time.Duration // how long each of them lasts
	startUp bool
	idle    time.Duration // how long doing nothing is watched; 0: not
	outage  time.Duration // how long the broker is away; 0: not
}

// A drainCase is a backlog and where it goes.
type drainCase struct {
	Name           string   `json:"name"`
	Rows           int      `json:"rows"`
	PayloadBytes   int      `json:"payload_bytes"`
	PerTransaction int      `json:"per_transaction"`
	Compressions   []string `json:"compressions"`
	Spread
}

// A Spread is what rows are spread over.
type Spread struct {
	Keys       int   `json:"keys"`
	Topics     int   `json:"topics"`
	Partitions int32 `json:"partitions"` // of each topic
}

// spreadOver returns a Spread with so many keys that each partition gets rows.
func spreadOver(topics int, partitions int32) Spread {
	s := Spread{Topics: topics, Partitions: partitions}
	s.Keys = max(someKeys, keysPerPartition*s.allPartitions())
	return s
}

// allPartitions returns the number of partitions of all topics.
func (s Spread) allPartitions() int { return s.Topics * int(s.Partitions) }

// usual reports whether s has the default topics and partitions.
func (s Spread) usual() bool { return s.Topics == 1 && s.Partitions == somePartitions }

// where returns the topics and partitions as text.
func (s Spread) where() string {
	partitions := terminal.Number(int(s.Partitions)) + " partitions"
	if s.Partitions == 1 {
		partitions = "1 partition"
	}
	if s.Topics == 1 {
		return partitions
	}
	return fmt.Sprintf("%s topics of %s", terminal.Number(s.Topics), partitions)
}

func (c drainCase) load() measure.Load {
	return measure.Load{Rows: c.Rows, PayloadBytes: c.PayloadBytes, PerTransaction: c.PerTransaction, Keys: c.Keys}
}

const (
	someKeys         = 1000
	somePartitions   = 12
	keysPerPartition = 10 // one partition of 22,000 gets no key
	uncompressed     = "none"
	giant            = 0 // all rows, where rows per transaction are listed
)

// A matrix is every combination of its dimensions.
type matrix struct {
	payloads       []int // bytes
	perTransaction []int // rows; giant
	compressions   []string
	rows           int // 0: as many as make sense for a payload
	over           Spread
}

// cases returns a case for each load; compressions are variants within a case,
// because they read the same backlog.
func (m matrix) cases() []drainCase {
	var all []drainCase
	for _, size := range m.payloads {
		for _, per := range m.perTransaction {
			rows := cmp.Or(m.rows, enough(size))
			name := fmt.Sprintf("%s, %s a transaction", size2text(size), terminal.Number(per))
			if per == giant {
				name = fmt.Sprintf("%s, one transaction", size2text(size))
			}
			if !m.over.usual() {
				name += ", " + m.over.where()
			}
			all = append(all, drainCase{
				Name: name, Rows: rows, PayloadBytes: size, PerTransaction: cmp.Or(per, rows),
				Compressions: m.compressions, Spread: m.over,
			})
		}
	}
	return all
}

// enoughWarmUp is how long a broker's share of the CPU goes on falling.
const enoughWarmUp = 30 * time.Second

// enough rows keep the fastest contender busy for some seconds.
func enough(size int) int { return min(500_000, 500_000_000/size) }

// scale returns loads in which something grows other than the payload or the
// transactions.
func (s *settings) scale() []drainCase {
	codecs := []string{s.codec}
	one := s.partitioned(1, somePartitions, 1_000_000, codecs)
	one.Name, one.PerTransaction = "a million rows in one transaction", one.Rows
	keys := s.partitioned(1, somePartitions, 500_000, codecs)
	keys.Name, keys.Keys = "100,000 keys", 100_000
	all := []drainCase{one, keys}
	for _, n := range []int32{1, 12, 100} {
		all = append(all, s.partitioned(1, n, 500_000, codecs))
	}
	for _, n := range []int{10, 100, 1000} {
		all = append(all, s.partitioned(n, somePartitions, 200_000, codecs))
	}
	return all
}

// partitionCounts returns loads of the same rows over 1, 12, 120, 1,200 and 12,000 partitions.
func (s *settings) partitionCounts() []drainCase {
	codecs := s.compressions
	if codecs == nil {
		codecs = someCodecs()
	}
	all := []drainCase{s.partitioned(1, 1, 200_000, codecs)}
	for _, topics := range []int{1, 10, 100, 1000} {
		all = append(all, s.partitioned(topics, somePartitions, 200_000, codecs))
	}
	return all
}

// partitioned returns a load of rows, or as many as the flags say, over topics and their partitions.
func (s *settings) partitioned(topics int, partitions int32, rows int, codecs []string) drainCase {
	over := spreadOver(topics, partitions)
	return drainCase{
		Name: over.where(), Rows: cmp.Or(s.rows, rows), PayloadBytes: 200, PerTransaction: 10, Compressions: codecs, Spread: over,
	}
}

// someCodecs are those that are compared.
func someCodecs() []string { return []string{uncompressed, "lz4", "zstd"} }

// A suite is a plan with a name. Dimensions that the command line names
// replace its own.
type suite struct {
	name, about string
	warmUp      time.Duration
	plan        func(*settings) plan
}

func suites() []suite {
	sizes, pers, codecs := []int{200, 1000, 10_000}, []int{1, 10, 1000, giant}, someCodecs()
	rates := []int{100, 200, 1000, 3000}
	return []suite{
		{"quick", "a little of everything, in a minute or two", 0, func(s *settings) plan {
			m := matrix{payloads: []int{200, 1000}, perTransaction: []int{10, giant}, compressions: []string{s.codec}, rows: 100_000}
			return plan{
				drains: s.matrix(m).cases(), rates: s.ratesOr(200), flow: cmp.Or(s.duration, 2*time.Second),
				startUp: true, idle: cmp.Or(s.duration, 2*time.Second),
			}
		}},
		{"drain", "payload sizes × rows in a transaction", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.matrix(matrix{payloads: sizes, perTransaction: pers, compressions: []string{s.codec}}).cases()}
		}},
		{"compression", "payload sizes × codecs, 10 rows in a transaction", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.matrix(matrix{payloads: sizes, perTransaction: []int{10}, compressions: codecs}).cases()}
		}},
		{"latency", "commit to consumer at fixed rates, start-up, idling", enoughWarmUp, func(s *settings) plan {
			d := cmp.Or(s.duration, 20*time.Second)
			return plan{rates: s.ratesOr(rates...), flow: d, startUp: true, idle: d}
		}},
		{"scale", "a giant transaction, many keys, partitions, topics", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.scale()}
		}},
		{"partitions", "1 to 12,000 partitions × codecs: rows and batches a second", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.partitionCounts()}
		}},
		{"full", "all of it, every size × transaction × codec", enoughWarmUp, func(s *settings) plan {
			m := matrix{payloads: sizes, perTransaction: pers, compressions: codecs}
			d := cmp.Or(s.duration, 20*time.Second)
			return plan{
				drains: slices.Concat(s.matrix(m).cases(), s.scale()),
				rates:  s.ratesOr(rates...), flow: d, startUp: true, idle: d,
			}
		}},
	}
}
