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
	rates   []int         // of latency measurements: transactions of one row per second
	flow    time.Duration // how long each of them lasts
	startUp bool
	idle    time.Duration // how long doing nothing is watched; 0: not
}

// A drainCase is a backlog and where it goes.
type drainCase struct {
	Name           string   `json:"name"`
	Rows           int      `json:"rows"`
	PayloadBytes   int      `json:"payload_bytes"`
	PerTransaction int      `json:"per_transaction"`
	Keys           int      `json:"keys"`
	Topics         int      `json:"topics"`
	Partitions     int32    `json:"partitions"` // of each topic
	Compressions   []string `json:"compressions"`
}

func (c drainCase) load() measure.Load {
	return measure.Load{Rows: c.Rows, PayloadBytes: c.PayloadBytes, PerTransaction: c.PerTransaction, Keys: c.Keys}
}

const (
	someKeys       = 1000
	somePartitions = 12
	uncompressed   = "none"
	giant          = 0 // all rows, where rows per transaction are listed
)

// A matrix is every combination of its dimensions.
type matrix struct {
	payloads       []int // bytes
	perTransaction []int // rows; giant
	compressions   []string
	rows           int // 0: as many as make sense for a payload
	keys           int
	partitions     int32
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
			all = append(all, drainCase{
				Name: name, Rows: rows, PayloadBytes: size, PerTransaction: cmp.Or(per, rows),
				Keys: m.keys, Topics: 1, Partitions: m.partitions, Compressions: m.compressions,
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
	with := func(name string, change func(*drainCase)) drainCase {
		c := drainCase{
			Name: name, Rows: cmp.Or(s.rows, 500_000), PayloadBytes: 200, PerTransaction: 10,
			Keys: someKeys, Topics: 1, Partitions: somePartitions, Compressions: []string{s.codec},
		}
		change(&c)
		return c
	}
	all := []drainCase{
		with("a million rows in one transaction", func(c *drainCase) {
			c.Rows = cmp.Or(s.rows, 1_000_000)
			c.PerTransaction = c.Rows
		}),
		with("100,000 keys", func(c *drainCase) { c.Keys = 100_000 }),
	}
	for _, n := range []int32{1, 12, 100} {
		all = append(all, with(terminal.Number(int(n))+" partitions", func(c *drainCase) { c.Partitions = n }))
	}
	for _, n := range []int{10, 100, 1000} {
		all = append(all, with(terminal.Number(n)+" topics of 12 partitions", func(c *drainCase) {
			c.Rows, c.Topics, c.Keys = cmp.Or(s.rows, 200_000), n, max(someKeys, 10*n)
		}))
	}
	return all
}

// A suite is a plan with a name. Dimensions that the command line names
// replace its own.
type suite struct {
	name, about string
	warmUp      time.Duration
	plan        func(*settings) plan
}

func suites() []suite {
	sizes, pers, codecs := []int{200, 1000, 10_000}, []int{1, 10, 1000, giant}, []string{uncompressed, "lz4", "zstd"}
	rates := []int{100, 200, 1000, 3000}
	return []suite{
		{"quick", "a little of everything, in a minute or two", 0, func(s *settings) plan {
			m := matrix{payloads: []int{200, 1000}, perTransaction: []int{10, giant}, compressions: []string{s.codec}, rows: 100_000}
			return plan{
				drains: s.matrix(m).cases(), rates: s.ratesOr(200), flow: cmp.Or(s.duration, 2*time.Second),
				startUp: true, idle: 2 * time.Second,
			}
		}},
		{"drain", "payload sizes × rows in a transaction", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.matrix(matrix{payloads: sizes, perTransaction: pers, compressions: []string{s.codec}}).cases()}
		}},
		{"compression", "payload sizes × codecs, 10 rows in a transaction", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.matrix(matrix{payloads: sizes, perTransaction: []int{10}, compressions: codecs}).cases()}
		}},
		{"latency", "commit to consumer at fixed rates, start-up, idling", enoughWarmUp, func(s *settings) plan {
			return plan{rates: s.ratesOr(rates...), flow: cmp.Or(s.duration, 20*time.Second), startUp: true, idle: 20 * time.Second}
		}},
		{"scale", "a giant transaction, many keys, partitions, topics", enoughWarmUp, func(s *settings) plan {
			return plan{drains: s.scale()}
		}},
		{"full", "all of it, every size × transaction × codec", enoughWarmUp, func(s *settings) plan {
			m := matrix{payloads: sizes, perTransaction: pers, compressions: codecs}
			return plan{
				drains: slices.Concat(s.matrix(m).cases(), s.scale()),
				rates:  s.ratesOr(rates...), flow: cmp.Or(s.duration, 20*time.Second), startUp: true, idle: 20 * time.Second,
			}
		}},
	}
}
