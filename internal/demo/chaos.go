package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
)

const (
	recoveryTimeout = time.Minute // for a new row to arrive after a strike
	strikesShown    = 6

	// haltTime is the time that the threads of a process take at most to stop after SIGSTOP.
	haltTime = 50 * time.Millisecond

	strikeSeconds = 2 // between two strikes, at the configured rate
)

// checkChaos returns why opts contradict Options.Chaos.
func checkChaos(opts Options, k kind) error {
	switch {
	case !opts.Chaos:
	case k.name != "kafka":
		return errors.New("--chaos needs Kafka: another broker may store a row again after a crash, and the demo counts each duplicate as an error")
	case runtime.GOOS == "windows":
		return errors.New("--chaos needs Linux or macOS: it freezes processes with signals")
	}
	return nil
}

// A fault is a kind of strike.
type fault string

const (
	kill        fault = "kill -9"
	freeze      fault = "freeze"
	cutBroker   fault = "cut Kafka"
	cutPostgres fault = "cut Postgres"
	wake        fault = "wake" // the end of a freeze
)

// A strike is one fault, and how the relays have coped with it.
type strike struct {
	Fault    fault         `json:"fault"`
	At       time.Duration `json:"-"`
	Seconds  float64       `json:"at"` // At
	What     string        `json:"what"`
	Then     string        `json:"then"`     // empty: not over yet
	Recovery float64       `json:"recovery"` // seconds until a row committed after the strike arrived; 0: it has not yet
}

// String describes the strike in one line.
func (s strike) String() string {
	t := fmt.Sprintf("%6.1f s  %s", s.At.Seconds(), terminal.Left(s.What, 35))
	recovery := "…"
	switch {
	case s.Fault == wake:
		recovery = ""
	case s.Recovery > 0:
		recovery = formatDuration(time.Duration(s.Recovery * float64(time.Second)))
	}
	return t + " " + terminal.Right(recovery, 7) + "  " + s.Then
}

// blows are how often each fault has happened.
type blows struct {
	Killed int `json:"killed"`
	Frozen int `json:"frozen"`
	Cut    int `json:"cut"`
}

// String names the faults with their numbers.
func (b blows) String() string {
	return fmt.Sprintf("killed %s · frozen %s · connections cut %s", times(b.Killed), times(b.Frozen), times(b.Cut))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return terminal.Number(n) + " times"
}

// A striker disturbs the relays of a crew, in a fixed order of faults: the next strike happens when the relays have
// recovered from the last one, one of them is a standby, and a number of records has arrived since.
type striker struct {
	demo   *demo
	crew   *crew
	faults []fault
	every  int // records

	mu      sync.Mutex
	frozen  *seat // nil: none
	begun   time.Time
	sum     blows
	strikes []strike // the newest last
}

func newStriker(d *demo, c *crew) *striker {
	s := &striker{demo: d, crew: c, every: cmp.Or(d.opts.StrikeEvery, strikeSeconds*d.opts.Rate), begun: time.Now()}
	s.faults = []fault{kill, cutBroker, freeze, kill, cutPostgres}
	s.faults = slices.DeleteFunc(s.faults, func(f fault) bool {
		return f == cutBroker && d.rig.broker.proxy == nil || f == cutPostgres && d.rig.proxy == nil
	})
	return s
}

// run strikes until ctx ends. It leaves no relay frozen.
func (s *striker) run(ctx context.Context) error {
	s.mu.Lock()
	s.begun = time.Now()
	s.crew.page.start(s.begun)
	s.mu.Unlock()
	for n := 0; ctx.Err() == nil; n++ {
		active, standby, err := s.calm(ctx)
		if err == nil {
			err = s.strike(ctx, s.faults[n%len(s.faults)], active, standby)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("chaos: %w", err)
		}
	}
	return nil
}

// calm waits until one relay streams, the other one waits for the slot, and records arrive.
func (s *striker) calm(ctx context.Context) (active, standby *seat, err error) {
	if err := s.moreRecords(ctx); err != nil {
		return nil, nil, err
	}
	err = s.within(ctx, "one relay does not stream while the other one waits for the slot", func() (ok bool) {
		active, standby, ok = s.crew.roles()
		return ok
	})
	return active, standby, err
}

// moreRecords waits for some more records.
func (s *striker) moreRecords(ctx context.Context) error {
	enough := s.demo.ledger.counts().records + s.every
	return s.within(ctx, "no records arrive", func() bool { return s.demo.ledger.counts().records >= enough })
}

// within waits for a condition. The error says what is wrong if it does not become true.
func (s *striker) within(ctx context.Context, wrong string, condition func() bool) error {
	limited, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	if err := until(limited, condition); err != nil {
		return fmt.Errorf("%s: %w", wrong, err)
	}
	return nil
}

// strike makes one strike, and waits until the relays have recovered.
func (s *striker) strike(ctx context.Context, f fault, active, standby *seat) error {
	switch f {
	case kill:
		return s.kill(ctx, active, standby)
	case freeze:
		return s.freeze(ctx, active, standby)
	case cutBroker:
		return s.cut(ctx, f, "Kafka", s.demo.rig.broker.proxy)
	case cutPostgres:
		return s.cut(ctx, f, "Postgres", s.demo.rig.proxy)
	case wake:
	}
	panic("unreachable: not a fault of newStriker: " + string(f))
}

func (s *striker) kill(ctx context.Context, active, standby *seat) error {
	pid := active.current().PID()
	if err := active.kill(); err != nil {
		return err
	}
	since := time.Now()
	s.begin(strike{Fault: kill, What: fmt.Sprintf("killed %s, process %d", active.name, pid)})
	if err := s.recovered(ctx, since); err != nil {
		return err
	}
	s.end(standby.name + " took over")
	return nil
}

// freeze freezes the active relay until the other one has taken over and delivers. Then it resumes it, and waits until the
// relay knows that it has lost the slot.
func (s *striker) freeze(ctx context.Context, active, standby *seat) error {
	p := active.current()
	if err := p.Pause(); err != nil {
		return err
	}
	s.setFrozen(active)
	defer func() {
		_ = p.Resume() // does nothing if it is not frozen
		s.setFrozen(nil)
	}()
	s.begin(strike{Fault: freeze, What: fmt.Sprintf("froze %s, process %d", active.name, p.PID())})
	select {
	case <-time.After(haltTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.recovered(ctx, time.Now()); err != nil {
		return err
	}
	s.end(standby.name + " took over")
	if err := s.within(ctx, standby.name+" has not taken over", func() bool { return standby.role() == relay.Active }); err != nil {
		return err
	}
	if err := s.moreRecords(ctx); err != nil {
		return err
	}
	if err := p.Resume(); err != nil {
		return err
	}
	s.setFrozen(nil)
	s.begin(strike{Fault: wake, What: fmt.Sprintf("woke %s, process %d", active.name, p.PID())})
	err := s.within(ctx, active.name+" does not know that it has lost the slot", func() bool { return active.role() == relay.Standby })
	if err != nil {
		return err
	}
	s.end("shut out, now standby")
	return nil
}

// cut cuts all connections of the relays to one side, in the middle of a message.
func (s *striker) cut(ctx context.Context, f fault, side string, proxy *faultproxy.Proxy) error {
	way, bytes := stream.Upstream, 1+rand.Int64N(50) // positions and requests
	if rand.IntN(2) == 0 {
		way = stream.Downstream
	}
	if (way == stream.Downstream) == (f == cutPostgres) {
		bytes = 1 + rand.Int64N(20_000) // rows or records
	}
	done := proxy.CutAfter(way, bytes)
	select {
	case <-done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	since := time.Now()
	s.begin(strike{Fault: f, What: "cut the connections to " + side})
	if err := s.recovered(ctx, since); err != nil {
		return err
	}
	s.end("connected again")
	return nil
}

// recovered waits for the first row that was committed after a time, and records when it came.
func (s *striker) recovered(ctx context.Context, since time.Time) error {
	err := s.within(ctx, "no row arrives that was committed after the strike", func() bool { return s.demo.ledger.newestArrived().After(since) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strikes[len(s.strikes)-1].Recovery = time.Since(since).Seconds()
	return nil
}

// begin counts a strike.
func (s *striker) begin(k strike) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.At = time.Since(s.begun)
	k.Seconds = k.At.Seconds()
	switch k.Fault {
	case kill:
		s.sum.Killed++
	case freeze:
		s.sum.Frozen++
	case cutBroker, cutPostgres:
		s.sum.Cut++
	case wake:
	}
	s.strikes = append(s.strikes, k)
	s.strikes = s.strikes[max(0, len(s.strikes)-maxStrikes):]
}

// maxStrikes is how many strikes the page shows.
const maxStrikes = 100

// end says how the relays have coped with the newest strike, and prints it if there is no panel.
func (s *striker) end(then string) {
	s.mu.Lock()
	newest := &s.strikes[len(s.strikes)-1]
	newest.Then = then
	text := newest.String()
	s.mu.Unlock()
	if !s.demo.screen.live {
		s.demo.screen.say("  " + text)
	}
}

func (s *striker) setFrozen(frozen *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = frozen
}

func (s *striker) isFrozen(of *seat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen == of
}

// read returns the number of strikes, and the newest ones, the newest last.
func (s *striker) read(n int) (sum blows, newest []strike) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum, slices.Clone(s.strikes[max(0, len(s.strikes)-n):])
}
