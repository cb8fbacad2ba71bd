package relay

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A State is what a Relay is doing.
type State string

// The states, in the order a healthy start passes through them.
const (
	Starting  State = "starting"  // first contact with both sides
	Waiting   State = "waiting"   // for the source: unreachable, or the slot is held by another
	Streaming State = "streaming" // a session is running
	Stopped   State = "stopped"   // Run has returned
)

// Stat is a snapshot of a Relay, safe to take at any time from any goroutine. Counters
// cover the whole life of the Relay.
type Stat struct {
	State State
	Since time.Time // when State began

	Sessions     uint64 // replication sessions begun
	Transactions uint64 // commits read
	Rows         uint64 // outbox rows sent to the sink
	Bytes        uint64 // bytes of their keys and values
	DeadLetters  uint64 // those that went to the dead-letter topic instead
	Refused      uint64 // of the dead letters, those that were records and that Kafka did not take

	// Behind is when the oldest of the transactions that have been read and are not confirmed
	// was committed, by the server's clock; zero if there is none.
	Behind time.Time

	Received  pglogrepl.LSN // position read: commit ends and keepalives
	Confirmed pglogrepl.LSN // position the server may be told
	LastError string        // why the last session ended, or what is waited for
	Failures  []Failure     // the last of these, oldest first
	Slot      SlotStat
	Sink      sink.Stat
	Spans     *tracing.Stat // nil: none are made
}

// SlotStat is what the catalog said of the slot when it was last read.
type SlotStat struct {
	ReadAt        time.Time // zero: never
	Exists        bool
	WALStatus     string        // reserved, extended, unreserved, lost
	Invalidation  string        // why it is lost, from Postgres 17 on
	WALEnd        pglogrepl.LSN // of the server's log at ReadAt
	RetainedBytes int64         // log that is kept for it
	SafeBytes     *int64        // that may be written before log it needs may go, may be negative; nil: no limit
	LimitAt       time.Time     // when SafeBytes will be 0 at the present rate; zero: not known, or it does not shrink
}

// Risk judges how the slot stands at now.
func (s *SlotStat) Risk(now time.Time) catalog.Risk {
	if !s.Exists {
		return catalog.Risk{}
	}
	return catalog.Reserve{
		WALStatus: s.WALStatus, Invalidation: s.Invalidation, Retained: s.RetainedBytes, Safe: s.SafeBytes, LimitAt: s.LimitAt,
	}.Judge(now)
}

// slotState is the part of Stat that the catalog tells.
type slotState struct{ stat atomic.Pointer[SlotStat] }

func (s *slotState) set(c *catalog.State, limitAt time.Time) {
	st := SlotStat{ReadAt: c.ReadAt, WALEnd: c.WALEnd}
	if c.Slot != nil {
		r := c.Reserve(limitAt)
		st.Exists, st.WALStatus, st.Invalidation, st.RetainedBytes, st.SafeBytes, st.LimitAt = true, r.WALStatus, r.Invalidation, r.Retained, r.Safe, r.LimitAt
	}
	s.stat.Store(&st)
}

// flowCounts is what the publishing goroutine counts by itself before it adds it to flow,
// once per batch: no lock and no shared cache line per row.
type flowCounts struct {
	transactions, rows, bytes uint64
	received                  pglogrepl.LSN
}

// flow is the part of Stat that changes with the data.
type flow struct {
	tracker atomic.Pointer[checkpoint.Tracker] // the current session's; its last one between sessions

	mu     sync.Mutex
	counts flowCounts
}

// add moves counts into f and clears them.
func (f *flow) add(counts *flowCounts) {
	if *counts == (flowCounts{}) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.transactions += counts.transactions
	f.counts.rows += counts.rows
	f.counts.bytes += counts.bytes
	f.counts.received = max(f.counts.received, counts.received)
	*counts = flowCounts{}
}

// begin starts the position over: another session may be on another timeline.
func (f *flow) begin(t *checkpoint.Tracker) {
	f.tracker.Store(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.received = t.Confirmed()
}

func (f *flow) snapshot() (counts flowCounts, confirmed pglogrepl.LSN, oldest time.Time) {
	if t := f.tracker.Load(); t != nil {
		confirmed, oldest = t.Confirmed(), t.Oldest()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts, confirmed, oldest
}

// phase is the part of Stat that changes with the relay's state.
type phase struct {
	mu       sync.Mutex
	state    State
	since    time.Time
	sessions uint64
	err      string
	failures failures
}

func (p *phase) enter(s State, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != p.state {
		p.state, p.since = s, time.Now()
		if s == Streaming {
			p.sessions++
		}
	}
	if err != nil {
		p.err = err.Error()
		p.failures.add(err, time.Now())
	}
}

// Stat returns a snapshot.
func (c *Relay) Stat() Stat {
	counts, confirmed, oldest := c.flow.snapshot()
	st := Stat{
		Transactions: counts.transactions, Rows: counts.rows, Bytes: counts.bytes,
		Received: counts.received, Confirmed: confirmed,
		Behind: oldest,
	}
	st.DeadLetters, st.Refused = c.deadLetters.count()
	c.phase.mu.Lock()
	st.State, st.Since, st.Sessions, st.LastError = c.phase.state, c.phase.since, c.phase.sessions, c.phase.err
	st.Failures = slices.Clone(c.phase.failures)
	c.phase.mu.Unlock()
	if slot := c.slot.stat.Load(); slot != nil {
		st.Slot = *slot
	}
	if reached := c.sink.Load(); reached != nil {
		st.Sink = (*reached).Stat()
	}
	if c.cfg.Tracer != nil {
		st.Spans = new(c.cfg.Tracer.Stat())
	}
	return st
}
