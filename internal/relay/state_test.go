package relay

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// newStateMachine returns a stateMachine in a state, and its log.
func newStateMachine(s state) (*stateMachine, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return &stateMachine{log: slog.New(slog.NewTextHandler(log, nil)), state: s, shows: "before", role: "before"}, log
}

// A state shows its own word and role, or those of the state before. A transition that the table does not have is an error in the log,
// and the relay goes on.
func TestEveryTransition(t *testing.T) {
	for from := range states {
		for to := range states {
			m, log := newStateMachine(state(from))
			m.enter(t.Context(), state(to), nil)
			known := from == to || slices.Contains(states[from].next, state(to))
			if logged := strings.Contains(log.String(), "level=ERROR"); logged == known || m.state != state(to) {
				t.Errorf("%s → %s: state %s, log %q", states[from].name, states[to].name, states[m.state].name, log)
			}
			want := states[to]
			if want.shows == "" {
				want.shows, want.role = "before", "before"
			}
			if m.shows != want.shows || m.role != want.role {
				t.Errorf("%s → %s: shows %q, role %q; want %q, %q", states[from].name, states[to].name, m.shows, m.role, want.shows, want.role)
			}
		}
	}
}

// From every state but the last the relay can stop, and it can reach every state.
func TestStatesAreConnected(t *testing.T) {
	reach := func(from state) map[state]bool {
		seen := map[state]bool{from: true}
		for todo := []state{from}; len(todo) > 0; todo = todo[1:] {
			for _, next := range states[todo[0]].next {
				if !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
		return seen
	}
	if n := len(reach(created)); n != len(states) {
		t.Errorf("%d of %d states can be reached", n, len(states))
	}
	for s := range states {
		if !reach(state(s))[stopped] {
			t.Errorf("the relay cannot stop from %s", states[s].name)
		}
	}
}

// The figure in the documentation has the transitions of the table.
func TestFigureOfTheStates(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, figure, _ := strings.Cut(string(text), "stateDiagram-v2\n")
	figure, _, _ = strings.Cut(figure, "```")
	var got, want []string
	for line := range strings.Lines(figure) {
		if from, to, ok := strings.Cut(strings.TrimSpace(line), " --> "); ok {
			got = append(got, from+" → "+to)
		}
	}
	name := func(s state) string { return strings.ReplaceAll(states[s].name, " ", "_") }
	for from, row := range states {
		for _, to := range row.next {
			if state(from) == created {
				want = append(want, "[*] → "+name(to))
			} else {
				want = append(want, name(state(from))+" → "+name(to))
			}
		}
		if row.next == nil {
			want = append(want, name(state(from))+" → [*]")
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-table +figure):\n%s", diff)
	}
}

// The error decides for what the relay waits. It is a standby only while another process uses the slot.
func TestWaitingStates(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want state
	}{
		{replication.ErrSlotInUse, standby},
		{sink.ErrSuperseded, fenced},
		{fault.ErrSlotTaken, standby},
		{fmt.Errorf("%w; %w", replication.ErrSlotInUse, fault.ErrSenderKept), waitingForSource},
		{replication.ErrUnreachable, waitingForSource},
		{errors.New("never heard of"), waitingForSource},
		{position.ErrNoStore, waitingForBroker},
		{sink.ErrAccess, waitingForBroker},
	} {
		if got := waitingState(tc.err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, states[got].name, states[tc.want].name)
		}
	}
}

// A lost session shows at once, and is no failure yet. Without a streaming session, its end changes nothing.
func TestLostSession(t *testing.T) {
	for s, changes := range map[state]bool{stream: true, drain: true, own: false, standby: false} {
		m, log := newStateMachine(created)
		m.enter(t.Context(), firstContact, nil)
		m.enter(t.Context(), own, nil)
		if s != own {
			m.enter(t.Context(), map[state]state{stream: stream, drain: stream, standby: standby}[s], nil)
		}
		m.enter(t.Context(), s, nil)
		m.loseSession(t.Context(), streamtest.ErrLost)
		want := s
		if changes {
			want = waitingForSource
		}
		if m.state != want || (m.err != "") != changes || len(m.failures) > 0 || m.role == Active || log.Len() > 0 {
			t.Errorf("%s: then %s, error %q, role %q, %d failures\n%s", states[s].name, states[m.state].name, m.err, m.role, len(m.failures), log)
		}
	}
}

// Attempts between two waiting states do not change what Stat shows, nor since when.
func TestStatShowsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newStateMachine(waitingForSource)
		m.enter(t.Context(), waitingForSource, replication.ErrUnreachable)
		since := time.Now()
		for range 3 {
			bubble.Sleep(time.Second)
			m.enter(t.Context(), own, nil)
			m.enter(t.Context(), waitingForBroker, position.ErrNoStore)
		}
		var st Stat
		m.addTo(&st)
		if st.State != Waiting || !st.Since.Equal(since) || st.Sessions != 0 || st.LastError != position.ErrNoStore.Error() {
			t.Errorf("%+v", st)
		}
	})
}
