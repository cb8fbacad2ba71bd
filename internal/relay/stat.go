package relay

import (
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A State is what a Relay shows of its state: see states.
type State string

// The states, in the order of a successful start.
const (
	Starting  State = "starting"  // first contact with both sides
	Waiting   State = "waiting"   // retrying: a side is unreachable, or another process streams from the slot
	Streaming State = "streaming" // a session is running
	Stopped   State = "stopped"   // Run has returned
)

// A Role is the part of a Relay among the relays that use the same slot.
type Role string

// The roles.
const (
	NoRole  Role = ""        // the relay is starting, or retries after an error, or has stopped
	Active  Role = "active"  // a session is running
	Standby Role = "standby" // the relay waits for the slot, which another process uses
)

// Stat is a snapshot of a Relay. Counters cover the whole life of the Relay.
type Stat struct {
	State State
	Since time.Time // when State began
	Role  Role

	Sessions     uint64 // replication sessions started
	Transactions uint64 // commits read
	Rows         uint64 // outbox rows sent to the sink
	DeadLetters  uint64 // rows sent to the dead-letter topic instead
	Refused      uint64 // of DeadLetters: records that the broker rejected
	Followed     uint64 // of DeadLetters: records that follow a bad one of their key

	Parked        []parking.Parking // the parked keys, the longest parked first; empty while another relay has the slot
	ParkedRecords uint64            // dead letters of parked keys
	Neighbours    []string          // published tables whose rows are skipped, as of the last read of the catalog

	// Behind is the earliest of three times: the commit time of the oldest unacknowledged transaction, by
	// the server's clock, the time since which an acknowledged position has been waiting to be recorded,
	// and the time of the first read of the catalog that has shown WAL that is still not received. Zero if
	// there is none.
	Behind time.Time

	Received  pglogrepl.LSN   // highest position read: end LSNs and keepalives
	WALBytes  uint64          // bytes of WAL read, counted from the first position of each ownership
	Confirmed pglogrepl.LSN   // confirmed position of the slot: last confirmed to Postgres, or read from the catalog
	LastError string          // why the last session ended, or what the relay waits for
	Failures  []fault.Failure // the latest failures, oldest first
	Slot      SlotStat
	Refill    *RefillStat // nil: no refill is running
	Sink      sink.Stat
	Unsaved   bool          // the stall in Sink is that of the position file
	Spans     *tracing.Stat // nil: tracing is off
}

// RefillStat is the progress of a running refill of a lost slot.
type RefillStat = pump.RefillStat

// SlotStat is the state of the slot when the catalog was last read.
type SlotStat struct {
	ReadAt        time.Time // zero: never
	SystemID      string    // system identifier of the server
	Exists        bool
	WALStatus     string        // reserved, extended, unreserved, lost
	Invalidation  string        // why the slot is invalidated, from Postgres 17 on
	WALEnd        pglogrepl.LSN // end of the server's WAL at ReadAt
	RetainedBytes int64         // WAL that Postgres retains for the slot
	SafeBytes     *int64        // WAL that may be written before Postgres may invalidate the slot; may be negative; nil: no limit
	SpilledBytes  int64         // of transactions that Postgres has written to disk to decode them, since its statistics were reset
	LimitAt       time.Time     // when SafeBytes reaches 0 at the current rate; zero: unknown, or it does not shrink
	Refills       bool          // the relay refills the gap itself after the loss of the slot
	Standbys      []string      // slots of synchronized_standby_slots from which no standby streams: Postgres sends nothing meanwhile
}

// unsent is the oldest WAL that a read of the catalog has shown before Postgres has sent it.
type unsent struct {
	end   pglogrepl.LSN // the end of the WAL at that time
	since time.Time
}

// next returns u, which may be nil, after another read of the catalog, which has shown WAL up to end.
func (u *unsent) next(end, received pglogrepl.LSN, at time.Time) *unsent {
	if u != nil && received < u.end && u.end <= end { // otherwise it was received, or the server is another one
		return u
	}
	return &unsent{end, at}
}

// waitingSince returns the time since which the WAL is waiting; zero if it was received. u may be nil.
func (u *unsent) waitingSince(received pglogrepl.LSN) time.Time {
	if u == nil || received >= u.end {
		return time.Time{}
	}
	return u.since
}

// Risk returns the risk at the time now that Postgres invalidates the slot.
func (s *SlotStat) Risk(now time.Time) catalog.Risk {
	if !s.Exists {
		return catalog.Risk{}
	}
	return catalog.Reserve{
		WALStatus: s.WALStatus, Invalidation: s.Invalidation, Retained: s.RetainedBytes, Safe: s.SafeBytes, LimitAt: s.LimitAt, Refills: s.Refills,
	}.Judge(now)
}

// noteSlot keeps the state of the slot in c.
func (r *Relay) noteSlot(c *catalog.State) {
	st := &SlotStat{ReadAt: c.ReadAt, SystemID: c.SystemID, WALEnd: c.WALEnd, Standbys: c.MissingStandbys(), Refills: r.cfg.RefillOnLoss}
	r.unsent.Store(r.unsent.Load().next(c.WALEnd, r.progress.Counts().Received, c.ReadAt))
	if c.Slot != nil {
		reserve := c.Reserve(r.history.LimitAt())
		st.Exists, st.WALStatus, st.Invalidation = true, reserve.WALStatus, reserve.Invalidation
		st.RetainedBytes, st.SafeBytes, st.LimitAt = reserve.Retained, reserve.Safe, reserve.LimitAt
		st.SpilledBytes = c.Slot.Decoding.SpilledBytes
	}
	r.slot.Store(st)
}

// Stat returns a snapshot of the Relay. It may be called at any time, from any goroutine.
func (r *Relay) Stat() Stat {
	st := Stat{Confirmed: r.owner.SlotPosition(), Behind: r.positions.Writer.WaitingSince()}
	if t := r.owner.Tracker(); t != nil {
		st.Behind = earlier(st.Behind, t.OldestCommitTime())
	}
	counts := r.progress.Counts()
	st.Transactions, st.Rows, st.Received, st.WALBytes = counts.Transactions, counts.Rows, counts.Received, counts.WALBytes
	st.Neighbours = r.neighbours.List()
	st.Refill = r.progress.Refill()
	st.DeadLetters, st.Refused, st.Followed = r.deadLetters.Counts()
	st.Parked, st.ParkedRecords = r.deadLetters.Parked().List(), r.deadLetters.Parked().Total()
	st.Behind = earlier(st.Behind, r.unsent.Load().waitingSince(st.Received))
	r.state.addTo(&st)
	if slot := r.slot.Load(); slot != nil {
		st.Slot = *slot
	}
	st.Sink, st.Unsaved = r.sinkStat()
	if st.Role == Standby { // what this process had read and sent before is the other one's now
		st.Behind, st.Received, st.Refill = time.Time{}, 0, nil
		st.Sink.InFlightRecords, st.Sink.InFlightBytes = 0, 0
	}
	if r.cfg.Tracer != nil {
		st.Spans = new(r.cfg.Tracer.Stat())
	}
	return st
}

// earlier returns the earlier one of two times, of which each may be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// sinkStat returns the Stat of the sink. A position store that is not at the broker counts as part of the sink: without it nothing is
// confirmed either. unsaved says that its stall is the one in st.
func (r *Relay) sinkStat() (st sink.Stat, unsaved bool) {
	if reached := r.sink.Load(); reached != nil {
		st = (*reached).Stat()
	}
	since, cause := r.store.Stall()
	if !since.IsZero() && (st.StalledSince.IsZero() || since.Before(st.StalledSince)) {
		st.StalledSince, st.StallReason, st.StallMissing, st.StallAdvice, unsaved = since, cause.Error(), "", "", true
	}
	return st, unsaved
}
