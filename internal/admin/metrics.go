package admin

import (
	"math"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
)

const namespace = "outbox_cdc_"

// A metric is a metric of the last sample, or a histogram.
type metric struct {
	name, help string
	labels     []string
	kind       prometheus.ValueType
	values     func(*sample, emit) // nil: a histogram
}

// emit takes a value and the values of its labels.
type emit func(value float64, labels ...string)

func ackSeconds() metric {
	return metric{name: namespace + "ack_seconds", help: "Time from writing a produce request to its response."}
}

func commitToAckSeconds() metric {
	return metric{
		name: namespace + "commit_to_ack_seconds",
		help: "Time from the commit of a transaction until the broker has acknowledged it and every earlier one, by the clocks of both machines.",
	}
}

// metrics returns the metrics of the relay that are not histograms.
func (c *collector) metrics() []metric {
	return append(c.counters(), gauges()...)
}

func (c *collector) counters() []metric {
	return []metric{
		{
			name: namespace + "records_total", labels: []string{"topic"}, kind: prometheus.CounterValue,
			help: "Records that the broker has acknowledged. Destinations after the first hundred count as " + otherTopics + ".", values: c.records,
		},
		{
			name: namespace + "bytes_total", kind: prometheus.CounterValue,
			help:   "Bytes of keys, values and headers that the broker has acknowledged.",
			values: func(s *sample, put emit) { put(float64(s.bytes)) },
		},
		{
			name: namespace + "transactions_total", kind: prometheus.CounterValue,
			help:   "Transactions that the relay has read from the slot.",
			values: func(s *sample, put emit) { put(float64(s.stat.Transactions)) },
		},
		{
			name: namespace + "reconnects_total", labels: []string{"side"}, kind: prometheus.CounterValue,
			help: "Reconnects: replication sessions after the first (source), and connections to brokers that replaced a broken one (sink).",
			values: func(s *sample, put emit) {
				put(float64(max(s.stat.Sessions, 1)-1), "source")
				put(float64(s.stat.Sink.Reconnects), "sink")
			},
		},
		{
			name: namespace + "bad_records_total", labels: []string{"reason"}, kind: prometheus.CounterValue,
			help: "Dead letters: rows that could not become a record (row), and records that the broker rejected (broker).",
			values: func(s *sample, put emit) {
				put(float64(s.stat.DeadLetters-s.stat.Refused-s.stat.Followed), "row")
				put(float64(s.stat.Refused), "broker")
			},
		},
		{
			name: namespace + "parked_records_total", kind: prometheus.CounterValue,
			help:   "Records of parked keys that the relay has sent to the dead-letter topic, the bad ones included.",
			values: func(s *sample, put emit) { put(float64(s.stat.ParkedRecords)) },
		},
		{
			name: namespace + "duplicates_possible_total", kind: prometheus.CounterValue,
			help:   "Times that some records may have been duplicated, because a broker had lost the producer's state, or the relay could not find out what an earlier relay had stored in a partition.",
			values: func(s *sample, put emit) { put(float64(s.stat.Sink.DuplicatesPossible)) },
		},
		{
			name: namespace + "slot_spilled_bytes_total", kind: prometheus.CounterValue,
			help:   "Bytes of transactions that Postgres has written to disk to decode them, because they exceeded logical_decoding_work_mem.",
			values: func(s *sample, put emit) { put(float64(s.stat.Slot.SpilledBytes)) },
		},
		spanCounter("spans_total", "Spans that the tracing endpoint has accepted. Absent without tracing.endpoint.",
			func(st *tracing.Stat) uint64 { return st.Exported }),
		spanCounter("spans_dropped_total", "Sampled records without a span, because too many spans were in flight or waiting for the endpoint. The relay passes their trace context on unchanged.",
			func(st *tracing.Stat) uint64 { return st.Dropped }),
		spanCounter("spans_rejected_total", "Spans that the tracing endpoint has rejected.",
			func(st *tracing.Stat) uint64 { return st.Rejected }),
	}
}

// spanCounter returns a counter that exists if tracing is enabled.
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
		gauge("streaming", "1 while a replication session is running, otherwise 0.", func(s *sample) float64 { return oneIf(s.stat.State == relay.Streaming) }),
		gauge("standby", "1 while the relay waits for the slot, which another process uses, otherwise 0.", func(s *sample) float64 { return oneIf(s.stat.Role == relay.Standby) }),
		gauge("refill_rows_remaining", "Rows that the running refill of a lost slot has not sent yet; 0 if none is running.", func(s *sample) float64 {
			if r := s.stat.Refill; r != nil {
				return max(0, float64(r.Total)-float64(r.Rows))
			}
			return 0
		}),
		gauge("refilling", "1 while the relay refills what a lost slot had not delivered, otherwise 0.", func(s *sample) float64 {
			if s.stat.Refill != nil {
				return 1
			}
			return 0
		}),
		gauge("lag_bytes", "Bytes of WAL after the confirmed position, as of the last catalog query, at most 10 s ago.", func(s *sample) float64 { return float64(s.lagBytes()) }),
		{
			name: namespace + "lag_seconds", kind: prometheus.GaugeValue,
			help: "Time since the commit of the oldest unacknowledged transaction, or since the position of an acknowledged one has been waiting to be recorded. While the relay reads nothing, or Postgres does not send WAL that it has, the time since then. Absent while it is a standby.",
			values: func(s *sample, put emit) {
				if lag := float64(s.lag()); !math.IsNaN(lag) {
					put(lag)
				}
			},
		},
		gauge("in_flight_records", "Unacknowledged records.", func(s *sample) float64 { return float64(s.stat.Sink.InFlightRecords) }),
		gauge("in_flight_bytes", "Bytes of keys, values and headers of unacknowledged records.", func(s *sample) float64 { return float64(s.stat.Sink.InFlightBytes) }),
		gauge("parked_keys", "Parked keys: their records go to the dead-letter topic until somebody releases them.", func(s *sample) float64 { return float64(len(s.stat.Parked)) }),
		gauge("parked_oldest_seconds", "Time since the longest parked key was parked; 0 if there is none.", func(s *sample) float64 { return s.parkedFor().Seconds() }),
		gauge("confirmed_lsn_bytes", "Confirmed position of the slot, as a number.", func(s *sample) float64 { return float64(s.stat.Confirmed) }),
		gauge("slot_retained_bytes", "Bytes of WAL that Postgres retains for the slot.", func(s *sample) float64 { return float64(s.stat.Slot.RetainedBytes) }),
		{
			name: namespace + "slot_safe_bytes", kind: prometheus.GaugeValue,
			help: "Bytes of WAL until Postgres may invalidate the slot. Absent if max_slot_wal_keep_size sets no limit.",
			values: func(s *sample, put emit) {
				if safe := s.stat.Slot.SafeBytes; safe != nil {
					put(float64(*safe))
				}
			},
		},
		gauge("slot_risk", "Risk that Postgres removes WAL that the slot needs: 0 none, 1 the slot is filling, 2 it is about to be lost, 3 it is lost.", func(s *sample) float64 { return float64(s.stat.Slot.Risk(s.at).Level()) }),
		gauge("sink_stalled_seconds", "Time since a destination, or a part of it, or the position store has made progress although it has records to send; 0 if there is none.", func(s *sample) float64 { return s.stalled().Seconds() }),
	}
}

// oneIf returns 1 if set is true, otherwise 0.
func oneIf(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

func gauge(name, help string, value func(*sample) float64) metric {
	return metric{
		name: namespace + name, help: help, kind: prometheus.GaugeValue,
		values: func(s *sample, put emit) { put(value(s)) },
	}
}

// buildInfo returns a gauge of 1 with the version as labels.
func buildInfo(cfg Config) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: namespace + "build_info", Help: "1, with the version of this program as labels.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "revision": cfg.Commit, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}
