package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
)

// A state is what a Relay is doing.
type state int

const (
	created          state = iota // Run was not called
	firstContact                  // connecting to both sides
	setUp                         // creating the publication and the slot
	own                           // acquiring the slot, and finding out from which position on this process may send
	stream                        // a session runs: sending rows, those of a copy or refill first
	drain                         // waiting until the records in flight have an outcome
	refilling                     // preparing a refill of what a lost slot has not delivered
	standby                       // waiting for the slot, which another relay uses
	fenced                        // taking back the identity of the relay, which another process has used at the broker
	waitingForSource              // waiting until Postgres can be reached
	waitingForBroker              // waiting until the broker or the position store can be reached
	stopped                       // Run has returned
)

// A stateRow is what holds in a state. Rows are sent only in stream. Positions are confirmed to Postgres only while a session runs: in
// own, stream and drain.
type stateRow struct {
	name  string
	shows State   // what Stat shows; empty: the same as before, so that it does not change with each attempt
	role  Role    // of a state that shows something
	next  []state // that may follow; a state may also be entered again, with another error
}

// states is the table of states and transitions. docs/architecture.md has it as a figure.
//
//nolint:gochecknoglobals // a table
var states = [...]stateRow{
	created:          {"created", "", NoRole, []state{firstContact}},
	firstContact:     {"first contact", Starting, NoRole, []state{setUp, own, stopped}},
	setUp:            {"set up", "", NoRole, []state{own, standby, fenced, waitingForSource, waitingForBroker, stopped}},
	own:              {"own", "", NoRole, []state{stream, drain, refilling, standby, fenced, waitingForSource, waitingForBroker, stopped}},
	stream:           {"stream", Streaming, Active, []state{drain, refilling, standby, fenced, waitingForSource, waitingForBroker}},
	drain:            {"drain", "", NoRole, []state{refilling, waitingForSource, stopped}},
	refilling:        {"refill", "", NoRole, []state{own, standby, fenced, waitingForSource, waitingForBroker, stopped}},
	standby:          {"standby", Waiting, Standby, []state{own, drain, waitingForSource, waitingForBroker, stopped}},
	fenced:           {"fenced", Waiting, NoRole, []state{own, drain, stopped}},
	waitingForSource: {"waiting for source", Waiting, NoRole, []state{own, drain, refilling, standby, fenced, waitingForBroker, stopped}},
	waitingForBroker: {"waiting for broker", Waiting, NoRole, []state{own, stream, drain, refilling, standby, fenced, waitingForSource, stopped}},
	stopped:          {"stopped", Stopped, NoRole, nil},
}

// waitingState returns the state in which the relay waits for another attempt after err. A relay whose own lost connection may still
// use the slot is no standby: perhaps no relay delivers.
func waitingState(err error) state {
	switch {
	case fault.PatienceFor(err) == fault.Standby && !errors.Is(err, fault.ErrSenderKept):
		return standby
	case fault.ExitCode(err) == exit.Sink:
		return waitingForBroker
	case fault.ExitCode(err) == exit.Fenced:
		return fenced
	}
	return waitingForSource
}

// A stateMachine has the state of a Relay, and the part of Stat that derives from it. Its methods may be called from any goroutine.
type stateMachine struct {
	log *slog.Logger

	mu       sync.Mutex
	state    state
	shows    State
	since    time.Time // when shows began
	role     Role
	sessions uint64 // replication sessions started
	err      string // of the latest failure
	failures fault.Failures
}

// enter changes the state to s. err is why the previous state failed, or nil. If the table does not have the transition, enter logs an
// error: the relay goes on, because what it sends and confirms does not depend on its state.
func (m *stateMachine) enter(ctx context.Context, s state, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(ctx, s)
	if err != nil {
		m.err = err.Error()
		m.failures.Add(err, time.Now())
	}
}

// loseSession is enter for a session that has ended by itself with err and is still being closed. It has no effect while no session
// streams. The failure counts when the relay waits for the next attempt.
func (m *stateMachine) loseSession(ctx context.Context, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shows == Streaming {
		m.change(ctx, waitingForSource)
		m.err = err.Error()
	}
}

// change changes the state. m.mu is locked.
func (m *stateMachine) change(ctx context.Context, s state) {
	from := m.state
	if s != from && !slices.Contains(states[from].next, s) {
		m.log.ErrorContext(ctx, "unknown transition between states of the relay, please report it",
			slog.String("from", states[from].name), slog.String("to", states[s].name))
	}
	m.state = s
	row := states[s]
	if s == stream && from != stream {
		m.sessions++
	}
	if row.shows == "" {
		return
	}
	m.role = row.role
	if row.shows != m.shows {
		m.shows, m.since = row.shows, time.Now()
	}
}

// sessionCount returns the number of sessions started.
func (m *stateMachine) sessionCount() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions
}

// addTo sets the part of st that derives from the state.
func (m *stateMachine) addTo(st *Stat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.State, st.Since, st.Role, st.Sessions, st.LastError = m.shows, m.since, m.role, m.sessions, m.err
	st.Failures = slices.Clone(m.failures)
}
