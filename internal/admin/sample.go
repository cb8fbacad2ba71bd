package admin

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
)

// interval is the time between two samples.
const interval = time.Second

// A sample is the state of the relay at one time.
type sample struct {
	at   time.Time
	stat relay.Stat

	records, bytes int64     // acknowledged, of all topics
	ackedAt        time.Time // when records last grew, or nothing was in flight
	answered       distribution
	delivery       distribution
}

// takeSample takes a sample for the history, and makes it the last one.
func (s *Server) takeSample(stat func() relay.Stat) {
	now := s.sample(stat)
	now.answered, now.delivery = s.answered.recent(), s.delivery.recent()
	s.last.Store(now)
	s.history.add(now)
}

// refresh makes a sample the last one. The durations since the one before stay for the history.
func (s *Server) refresh(stat func() relay.Stat) { s.last.Store(s.sample(stat)) }

// sample returns the state of the relay, without durations.
func (s *Server) sample(stat func() relay.Stat) *sample {
	now := &sample{stat: stat(), at: time.Now()}
	acked := now.stat.Sink.Acked()
	now.records, now.bytes, now.ackedAt = acked.Records, acked.Bytes, now.at
	if last := s.last.Load(); last != nil && last.records == now.records && now.stat.Sink.InFlightRecords > 0 {
		now.ackedAt = last.ackedAt
	}
	return now
}

// serverEnd returns the end of the WAL, as far as it is known: the value of the catalog is some seconds old.
func (s *sample) serverEnd() pglogrepl.LSN {
	return max(s.stat.Slot.WALEnd, s.stat.Received)
}

// lagBytes returns the bytes of WAL after the confirmed position, 0 for a standby.
func (s *sample) lagBytes() int64 {
	confirmed := s.stat.Confirmed
	if s.stat.Role == relay.Standby || confirmed == 0 || s.serverEnd() < confirmed {
		return 0
	}
	return int64(s.serverEnd() - confirmed)
}

// lag returns the seconds since the commit of the oldest unacknowledged transaction, or since the position of an
// acknowledged one has been waiting to be recorded. While the relay reads nothing, or Postgres does not send WAL that it
// has, the lag is unknown, and lag returns the time since then. The lag of a standby is that of another process, and lag
// returns none.
func (s *sample) lag() number {
	var lag time.Duration
	if s.stat.Role == relay.Standby {
		return none()
	}
	if s.stat.State != relay.Streaming {
		lag = max(0, s.at.Sub(s.stat.Since))
	}
	if behind := s.stat.Behind; !behind.IsZero() {
		lag = max(lag, s.at.Sub(behind))
	}
	return number(lag.Seconds())
}

// stalled returns the time since the sink has made progress, 0 if it is not stalled.
func (s *sample) stalled() time.Duration {
	if s.stat.Sink.StalledSince.IsZero() {
		return 0
	}
	return max(0, s.at.Sub(s.stat.Sink.StalledSince))
}

// unacknowledged returns the time since the sink has acknowledged a record, 0 if none is in flight.
func (s *sample) unacknowledged() time.Duration {
	if s.stat.Sink.InFlightRecords == 0 {
		return 0
	}
	return s.at.Sub(s.ackedAt)
}

// parkedFor returns the time since the longest parked key was parked, 0 if there is none.
func (s *sample) parkedFor() time.Duration {
	if len(s.stat.Parked) == 0 {
		return 0
	}
	return max(0, s.at.Sub(s.stat.Parked[0].Since))
}
