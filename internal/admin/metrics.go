package admin

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

const namespace = "outbox_cdc_"

// A metric is one that is made of the last look at the relay, or a histogram.
type metric struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
	values     func(*sample, emit) // nil: a histogram
}

// emit takes a value and what its labels say.
type emit func(value float64, labels ...string)

func ackSeconds() metric {
	return metric{name: namespace + "ack_seconds", help: "How long a produce request took from its writing to its answer."}
}

func commitToAckSeconds() metric {
	return metric{
		name: namespace + "commit_to_ack_seconds",
		help: "How long after its commit a transaction was acknowledged by Kafka, with everything before it, by the clocks of both machines.",
	}
}

// metrics are those of the relay that are no histograms.
func (c *collector) metrics() []metric {
	return append(c.counters(), gauges()...)
}

func (c *collector) counters() []metric {
	return []metric{
		{
			name: namespace + "records_total", labels: []string{"topic"}, kind: prometheus.CounterValue,
			help: "Records acknowledged by Kafka. Topics beyond the first hundred count as " + otherTopics + ".", values: c.records,
		},
		{
			name: namespace + "bytes_total", kind: prometheus.CounterValue,
			help:   "Bytes of keys, values and headers acknowledged by Kafka.",
			values: func(s *sample, put emit) { put(float64(s.bytes)) },
		},
		{
			name: namespace + "transactions_total", kind: prometheus.CounterValue,
			help:   "Transactions read from the slot.",
			values: func(s *sample, put emit) { put(float64(s.stat.Transactions)) },
		},
		{
			name: namespace + "reconnects_total", labels: []string{"side"}, kind: prometheus.CounterValue,
			help: "Connections made anew: replication sessions after the first (source), and connections to brokers in place of a broken one (sink).",
			values: func(s *sample, put emit) {
				put(float64(max(s.stat.Sessions, 1)-1), "source")
				put(float64(s.stat.Sink.Reconnects), "sink")
			},
		},
		{
			name: namespace + "bad_records_total", labels: []string{"reason"}, kind: prometheus.CounterValue,
			help: "Dead letters: rows that did not become a record (row), and records that Kafka did not take (kafka).",
			values: func(s *sample, put emit) {
				put(float64(s.stat.DeadLetters-s.stat.Refused), "row")
				put(float64(s.stat.Refused), "kafka")
			},
		},
		{
			name: namespace + "duplicates_possible_total", kind: prometheus.CounterValue,
			help:   "How often a broker had lost track of the numbering and it began anew: what was unacknowledged then may be in the log twice.",
			values: func(s *sample, put emit) { put(float64(s.stat.Sink.DuplicatesPossible)) },
		},
		spanCounter("spans_total", "Spans of records that the receiver has taken. Absent without tracing.endpoint.",
			func(st *tracing.Stat) uint64 { return st.Exported }),
		spanCounter("spans_dropped_total", "Sampled records that got no span, because too many were under way or waited for the receiver; their trace context is passed on as it came.",
			func(st *tracing.Stat) uint64 { return st.Dropped }),
		spanCounter("spans_rejected_total", "Spans that the receiver has rejected for good.",
			func(st *tracing.Stat) uint64 { return st.Rejected }),
	}
}

// spanCounter is a metric that is there if spans are.
func spanCounter(name, help string, value func(*tracing.Stat) uint64) metric {
	return metric{
		name: namespace + name, help: help, kind: prometheus.CounterValue,
		values: func(s *sample, put emit) {
			if st := s.stat.Spans; st != nil {
				put(float64(value(st)))
			}
		},
	}
}

func gauges() []metric {
	return []metric{
		gauge("streaming", "1 while a replication session runs, else 0.", func(s *sample) float64 {
			if s.stat.State == relay.Streaming {
				return 1
			}
			return 0
		}),
		gauge("lag_bytes", "WAL after the position that the relay has confirmed to Postgres, as of the last catalog query, at most 10 s ago.", func(s *sample) float64 { return float64(s.lagBytes()) }),
		gauge("lag_seconds", "Time since the commit of the oldest unacknowledged transaction, or since the position of an acknowledged one began to wait to be recorded; a lower bound while nothing is read.", func(s *sample) float64 { return s.lag().Seconds() }),
		gauge("in_flight_records", "Records handed over and not acknowledged.", func(s *sample) float64 { return float64(s.stat.Sink.InFlightRecords) }),
		gauge("in_flight_bytes", "Bytes of keys, values and headers handed over and not acknowledged.", func(s *sample) float64 { return float64(s.stat.Sink.InFlightBytes) }),
		gauge("confirmed_lsn_bytes", "The position that the relay has confirmed to Postgres, as a number.", func(s *sample) float64 { return float64(s.stat.Confirmed) }),
		gauge("slot_retained_bytes", "Log that the server keeps for the slot.", func(s *sample) float64 { return float64(s.stat.Slot.RetainedBytes) }),
		{
			name: namespace + "slot_safe_bytes", kind: prometheus.GaugeValue,
			help: "Log that may be written before some that the slot needs may be removed. Absent where max_slot_wal_keep_size sets no limit.",
			values: func(s *sample, put emit) {
				if safe := s.stat.Slot.SafeBytes; safe != nil {
					put(float64(*safe))
				}
			},
		},
		gauge("slot_risk", "How near the server is to removing log that the slot needs: 0 for not at all, 1 while the slot fills, 2 when it is about to be lost, 3 when it is lost.", func(s *sample) float64 { return float64(s.stat.Slot.Risk(s.at).Level()) }),
		gauge("sink_stalled_seconds", "How long a partition or topic, the position topic included, has made no progress although it has something to send; 0 if none.", func(s *sample) float64 { return s.stalled().Seconds() }),
	}
}

func gauge(name, help string, value func(*sample) float64) metric {
	return metric{
		name: namespace + name, help: help, kind: prometheus.GaugeValue,
		values: func(s *sample, put emit) { put(value(s)) },
	}
}

// buildInfo is 1, and says in its labels what runs.
func buildInfo(cfg Config) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: namespace + "build_info", Help: "1, with what this program was made of.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "revision": cfg.Commit, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
