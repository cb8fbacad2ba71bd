package soak

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// aliveWithin is how soon after a strike a row written after it has to be seen.
const aliveWithin = 10 * time.Second

// overAliveWithin is the same for other brokers than Kafka. A transaction may have hundreds of rows of one key, which are
// sent one after the other, and if the broker drops those that it has, nothing is seen meanwhile.
const overAliveWithin = 30 * time.Second

// missingAliveWithin is the same while a topic is missing. Then the relay confirms nothing, and Postgres decodes everything
// since then again after each lost session, also what it does not send.
const missingAliveWithin = 2 * time.Minute

func (s *soak) aliveWithin() time.Duration {
	switch {
	case s.over != nil:
		return overAliveWithin
	case s.cfg.missing:
		return missingAliveWithin
	}
	return aliveWithin
}

// heldWithin is how soon after a source loss the relay must hold the slot again. It takes 2 s on an idle
// machine.
const heldWithin = 2*time.Second + 3*time.Second

// brokerPatience and sourcePatience are how long the relay waits for a response of a broker, and of the
// server with which it starts a session.
const (
	brokerPatience = 20 * time.Second
	sourcePatience = 5 * time.Second
)

// largePayloads is what rows of up to 2 MB may take, in MB, beside what the relay takes
// otherwise: a message, its frame and its request.
const largePayloads = 16

// Under load, whatever is broken, the relay keeps its promises. The seed is printed; with
// the same seed the same strikes come, though not at the same instants.
func TestSoak(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	cycles := rig.EnvInt(t, "OUTBOX_TEST_SOAK", 6)
	s := newSoak(t, soakConfig{})
	s.run(t, cycles, DefaultWeights())
	s.report(t)
	s.complain(t)
}

// Two relays of one slot keep the guarantees too, whichever of them is killed, frozen, or cut off from
// either side, and even if requests of the older one arrive late. OUTBOX_TEST_TAKEOVERS is the number of
// strikes.
func TestSoakTwoRelays(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	cycles := rig.EnvInt(t, "OUTBOX_TEST_TAKEOVERS", 10)
	s := newSoak(t, soakConfig{relays: 2})
	s.run(t, cycles, TakeoverWeights())
	s.report(t)
	s.complain(t)
}

// complain fails the test with the first few violations of each kind, and says what was done before.
func (s *soak) complain(t *testing.T) {
	t.Helper()
	const each = 3
	found := s.found()
	if len(found) > 0 {
		for i, strike := range s.strikes {
			t.Logf("strike %d at %s: %s", i, strike.at.Format("15:04:05.000"), strike)
		}
	}
	shown := map[delivery.Kind]int{}
	for _, v := range found {
		if shown[v.Kind]++; shown[v.Kind] <= each {
			t.Error(v.String())
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(shown)) {
		if n := shown[kind]; n > each {
			t.Errorf("%s: %d more", kind, n-each)
		}
	}
}

// run writes through so many strikes, lets everything come to rest and checks it. It ends
// early when something is found, or the relay could not read further.
func (s *soak) run(t *testing.T, cycles int, weights map[Attack]int) {
	t.Helper()
	s.underLoad(t, func() {
		if s.cfg.refill {
			s.awaitSnapshot(t)
		}
		nemesis := NewNemesis(s.seed, weights)
		for i := 0; i < cycles && len(s.found()) == 0 && !t.Failed() && !s.fullBehindMissing(); i++ {
			strike := nemesis.Next()
			time.Sleep(strike.Load)
			began := time.Now()
			if err := s.strike(t.Context(), strike); err != nil {
				t.Fatalf("cycle %d, %s: %v", i, strike, err)
			}
			restored := time.Now()
			alive := s.alive(restored, strike)
			s.confirms.Answered()
			s.delivered.recovered(time.Now())
			s.strikes = append(s.strikes, struck{Strike: strike, at: began, outage: restored.Sub(began), recovery: time.Since(restored)})
			if !alive {
				break
			}
		}
	})
}

// underLoad starts the relays, writes while f runs, waits until everything is delivered, and checks it.
func (s *soak) underLoad(t *testing.T, f func()) {
	t.Helper()
	t.Logf("OUTBOX_TEST_SEED=%d, Postgres %s", s.seed, s.srv.Install())
	for n, i := range s.relays {
		rig.Must(t, s.launch(i))
		if n == 0 {
			i.process.Load().Logged(t, "streaming") // publication and slot exist
		}
	}
	stopSampling := s.sample(t)
	defer stopSampling()
	stopWriting := s.background(t)
	defer stopWriting()
	f()
	stopWriting()
	s.settle(t)
	stopSampling()
	if resident := s.peak.Resident >> 20; resident > rig.MaxResident+largePayloads {
		s.broke(Overgrown, "the relay's resident memory was %d MB, it may be %d MB", resident, rig.MaxResident+largePayloads)
	}
}

// alive waits until each topic has received a row that was written after an instant. No topic may stall
// for longer than a strike allows.
func (s *soak) alive(since time.Time, strike Strike) bool {
	limit := s.aliveWithin()
	if strike.Forgets(HoleHost) {
		s.halfOpen = since.Add(brokerPatience)
		s.confirms.Outage()(s.halfOpen) // a position may wait for the same response
	}
	switch {
	case since.Before(s.halfOpen): // the relay may acquire the slot only after a later strike
		limit += brokerPatience
	case strike.Has(RelayFreeze, HolePostgres, HoleHost): // an attempt to connect may be lost, or the end of one
		limit += SenderTimeout + sourcePatience
	}
	if strike.Has(SlotDrop, SlotRecreate) { // the new slot waits for every open transaction, and the missing rows are sent first
		limit += sourcePatience
	}
	newest, moved := map[string]time.Time{}, map[string]time.Time{}
	records := 0
	for {
		behind, now := s.checker.Behind(since, s.topics...), time.Now()
		if n := s.checker.Progress().Records; s.over != nil && n > records { // one key may have all of the window
			records = n
			clear(moved)
		}
		if len(behind) == 0 {
			return true
		}
		if s.anyEnded() {
			return false
		}
		for _, topic := range behind {
			if fresh := s.checker.Fresh(topic); moved[topic].IsZero() || fresh.After(newest[topic]) {
				newest[topic], moved[topic] = fresh, now // it makes progress, with older rows
			}
			if now.Sub(moved[topic]) > limit {
				s.broke(NotAlive, "no row written after %s was seen in %s, and none newer than before within %v", since.Format("15:04:05.000"), topic, limit)
				return false
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// anyEnded reports whether a relay has stopped by itself, which is a violation.
func (s *soak) anyEnded() bool {
	for _, i := range s.relays {
		if r := i.process.Load(); r.Ended() {
			if slices.ContainsFunc(s.found(), func(v Violation) bool { return v.Kind == Exited || v.Kind == Caught }) {
				return true
			}
			kind, code := Exited, r.Cmd.ProcessState.ExitCode()
			if code == exit.Continuity {
				kind = Caught
			}
			s.broke(kind, "%s ended with exit code %d:\n%s", i.name, code, rig.Tail(r.Stderr.String(), 20))
			return true
		}
	}
	return false
}

// settle waits until everything written has come, ends server and relay in order, and has
// the whole checked.
func (s *soak) settle(t *testing.T) {
	t.Helper()
	rig.Must(t, s.writers.Settle(t.Context()))
	rig.Must(t, s.journal.Err())
	if s.create != nil {
		s.create()
	}
	if s.parked != nil {
		s.releaseAll(t)
	}
	complete := s.drain()
	if s.confirmable != nil {
		s.confirmable(time.Now())
	}
	if s.anyEnded() {
		return
	}
	if complete && len(s.found()) == 0 {
		rig.AwaitConfirmed(t, s.db.Conn(t), soakSlot)
		rig.Must(t, s.restartPostgres(t.Context(), s.srv.Shutdown, true))
	}
	for _, i := range s.relays {
		i.process.Load().Terminate(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	rig.Must(t, s.catchUp(ctx))
	s.finishParked(t)
	s.checker.Finish()
	s.confirms.Finish()
}

// drain waits until every row has come, or for a while nothing has: what is late and what
// is lost can be told apart then.
func (s *soak) drain() (complete bool) {
	patience := s.aliveWithin()
	if len(s.found()) > 0 {
		patience = time.Second
	}
	_, rows := s.journal.Committed()
	last, since := 0, time.Now()
	for time.Since(since) < patience {
		now := s.checker.Progress().Rows
		if now >= rows-s.parked.dropped() {
			return true
		}
		if now > last {
			last, since = now, time.Now()
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// A struck is a strike that was carried out.
type struck struct {
	Strike
	at       time.Time
	outage   time.Duration // from its begin until everything ran again
	recovery time.Duration // from then until a row written later was seen
}

// report logs what the soak was, and how long recoveries took and how much was repeated
// after each kind of strike.
func (s *soak) report(t *testing.T) {
	t.Helper()
	transactions, rows := s.journal.Committed()
	progress := s.checker.Progress()
	t.Logf("%d strikes, %d transactions of %d rows, %d records by %d producers, %d repeated; %d positions confirmed, %d samples",
		len(s.strikes), transactions, rows, progress.Records, progress.Producers, progress.Records-progress.Rows, s.confirms.Updates(), s.samples)
	if s.cfg.refill {
		t.Logf("%d records were refilled", s.delivered.refills())
	}
	if s.parked != nil {
		s.parked.report(t)
	}
	t.Logf("resident memory up to %.1f MB, WAL held up to %.1f MB, slot free for %v at most",
		float64(s.peak.Resident)/(1<<20), float64(s.peak.Retained)/(1<<20), round(s.holding.longest))

	type group struct {
		outage, recovery []time.Duration
		repeated         []int
		explained        int
	}
	groups := map[string]*group{}
	faults := s.checker.Faults()
	if s.cfg.refill {
		reportTransactions(t, faults)
	}
	for i, strike := range s.strikes {
		g := groups[strike.Name()]
		if g == nil {
			g = &group{}
			groups[strike.Name()] = g
		}
		g.outage = append(g.outage, strike.outage)
		g.recovery = append(g.recovery, strike.recovery)
		g.repeated = append(g.repeated, faults[i].Duplicates)
		g.explained = max(g.explained, faults[i].Explained)
	}
	t.Logf("%-20s %5s  %9s  %27s  %30s", "", "", "outage", "recovery", "repeated")
	t.Logf("%-20s %5s  %9s  %9s%9s%9s  %6s%8s%8s%8s", "strike", "n", "p50", "p50", "p99", "max", "mean", "p99", "max", "may be")
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		t.Logf("%-20s %5d  %9v  %9v%9v%9v  %6d%8d%8d%8d", name, len(g.outage), round(percentile(g.outage, 50)),
			round(percentile(g.recovery, 50)), round(percentile(g.recovery, 99)), round(percentile(g.recovery, 100)),
			mean(g.repeated), percentile(g.repeated, 99), percentile(g.repeated, 100), g.explained)
	}
}

// reportTransactions logs of which transactions the duplicates of each fault are. A few transactions have thousands of
// rows, and one that is not visible in the last snapshot is refilled as a whole.
func reportTransactions(t *testing.T, faults []Fault) {
	t.Helper()
	const large = 500
	for i := range faults {
		f := &faults[i]
		if f.Duplicates == 0 {
			continue
		}
		transactions, most, ofLarge := f.Largest(large)
		t.Logf("fault %d, %s: %d duplicates of %d transactions, %d of the largest, %d of those with at least %d",
			i, f.Name, f.Duplicates, transactions, most, ofLarge, large)
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// percentile returns the smallest value that p percent of values do not exceed.
func percentile[T ~int | ~int64](values []T, p int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

func mean(values []int) int {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return sum / len(values)
}
