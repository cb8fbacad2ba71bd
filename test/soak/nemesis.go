package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// SenderTimeout is the server's wal_sender_timeout, after which it releases the slot of a silent relay.
const SenderTimeout = 3 * time.Second

// calmAfter is how long an undisturbed relay takes at most until a snapshot in its position record sees the
// rows from the beginning of this time: two seconds, and one more on a busy machine.
const calmAfter = 3 * time.Second

// An Attack is a kind of fault.
type Attack string

// The attacks. The soak restarts the process that an attack has stopped, and resumes one that it has paused.
const (
	RelayKill         Attack = "relay kill"         // SIGKILL
	RelayTerminate    Attack = "relay terminate"    // SIGTERM
	RelayPause        Attack = "relay pause"        // SIGSTOP, SIGCONT
	RelayFreeze       Attack = "relay freeze"       // SIGSTOP, SIGCONT after wal_sender_timeout
	SenderTerminate   Attack = "sender terminate"   // pg_terminate_backend of the WAL sender
	PostgresFast      Attack = "postgres fast"      // fast shutdown
	PostgresImmediate Attack = "postgres immediate" // shutdown without a checkpoint
	PostgresKill      Attack = "postgres kill"      // SIGKILL of all its processes
	BrokerKill        Attack = "broker kill"        // SIGKILL
	BrokerShutdown    Attack = "broker shutdown"    // SIGTERM
	BrokerPause       Attack = "broker pause"       // SIGSTOP, SIGCONT
	LeaderMove        Attack = "leader move"        // every partition gets another leader
	CutPostgres       Attack = "cut postgres"       // closes connections to Postgres, in the middle of a message
	CutBroker         Attack = "cut broker"         // closes connections to the broker, in the middle of a message

	HolePostgres Attack = "black hole postgres" // the network drops all data between one relay and Postgres for a while
	HoleBroker   Attack = "black hole broker"   // the network drops all data between one relay and the broker
	HoleHost     Attack = "black hole host"     // both

	SlotDrop     Attack = "slot drop"      // terminates the WAL sender, and drops the slot
	SlotRecreate Attack = "slot re-create" // the same, and another program creates the slot again

	// PublicationDrop drops the publication and creates it again. A correct relay
	// stops then, so only relays with a planted bug get this attack.
	PublicationDrop Attack = "publication drop"
)

// Target returns the target of the attack: relay, postgres or broker. A strike does
// not have two attacks on the same target.
func (a Attack) Target() string {
	switch a {
	case RelayKill, RelayTerminate, RelayPause, RelayFreeze, HoleHost:
		return "relay"
	case BrokerKill, BrokerShutdown, BrokerPause, LeaderMove, CutBroker, HoleBroker:
		return "broker"
	case SenderTerminate, PostgresFast, PostgresImmediate, PostgresKill, CutPostgres, HolePostgres, SlotDrop, SlotRecreate, PublicationDrop:
		return "postgres"
	}
	panic("no attack: " + string(a))
}

// DefaultWeights returns how often each attack is drawn. A broker takes seconds to
// start, so attacks that restart it are rare.
func DefaultWeights() map[Attack]int {
	return map[Attack]int{
		RelayKill: 320, RelayTerminate: 100, RelayPause: 50, RelayFreeze: 5,
		SenderTerminate: 150, PostgresFast: 40, PostgresImmediate: 110, PostgresKill: 60,
		BrokerKill: 10, BrokerShutdown: 6, BrokerPause: 54,
		CutPostgres: 60, CutBroker: 40, HolePostgres: 15, HoleBroker: 15,
	}
}

// TakeoverWeights returns weights for two relays. Faults after which one relay takes over from the other
// are more frequent than in DefaultWeights.
func TakeoverWeights() map[Attack]int {
	return map[Attack]int{
		RelayKill: 140, RelayTerminate: 100, RelayPause: 30, RelayFreeze: 120,
		SenderTerminate: 120, PostgresFast: 40, PostgresImmediate: 60, PostgresKill: 20,
		BrokerKill: 10, BrokerShutdown: 10, BrokerPause: 50,
		CutPostgres: 40, CutBroker: 30, HolePostgres: 90, HoleBroker: 60, HoleHost: 120,
	}
}

// WithoutBroker removes the attacks on the broker's process from weights, for a broker that has none of its own.
func WithoutBroker(weights map[Attack]int) map[Attack]int {
	for _, a := range []Attack{BrokerKill, BrokerShutdown, BrokerPause} {
		delete(weights, a)
	}
	return weights
}

// Replicated changes weights for a cluster of brokers, of which one at a time is broken: that is frequent, and the others go
// on. There is no proxy in front of them.
func Replicated(weights map[Attack]int) map[Attack]int {
	for _, a := range []Attack{CutBroker, HoleBroker, HoleHost} {
		delete(weights, a)
	}
	weights[BrokerKill], weights[BrokerShutdown], weights[BrokerPause], weights[LeaderMove] = 90, 40, 60, 120
	return weights
}

// WithSlotLosses adds slot losses to weights: about one attack in three.
func WithSlotLosses(weights map[Attack]int) map[Attack]int {
	weights[SlotDrop], weights[SlotRecreate] = 400, 150
	return weights
}

// pairs is the percentage of strikes with two attacks.
const pairs = 8

// A Strike is one cycle of a soak: load for a while, then one attack or two
// overlapping attacks.
type Strike struct {
	Load    time.Duration // before the attack
	Attacks []Step
	Standby bool // attack a relay that does not hold the slot, if there is one
}

// A Step is one attack of a strike.
type Step struct {
	Attack    Attack
	After     time.Duration      // delay after the beginning of the strike's first attack
	Hold      time.Duration      // duration of a pause or black hole
	Bytes     int64              // of a cut: number of bytes that the proxy still forwards
	Direction stream.Direction   // of a cut: direction of these bytes
	Ways      []stream.Direction // of a black hole; none: both
	Forgotten bool               // of a black hole: the connections stay half-open
}

// Has reports whether the strike has one of the attacks.
func (s Strike) Has(attacks ...Attack) bool {
	return slices.ContainsFunc(s.Attacks, func(step Step) bool { return slices.Contains(attacks, step.Attack) })
}

// Forgets reports whether the attack leaves half-open connections.
func (s Strike) Forgets(a Attack) bool {
	return slices.ContainsFunc(s.Attacks, func(step Step) bool { return step.Attack == a && step.Forgotten })
}

// String describes the strike in one line.
func (s Strike) String() string {
	names := make([]string, len(s.Attacks))
	for i, step := range s.Attacks {
		names[i] = string(step.Attack)
		if step.After > 0 {
			names[i] += fmt.Sprintf(" +%v", step.After)
		}
		if step.Hold > 0 {
			names[i] += fmt.Sprintf(" for %v", step.Hold)
		}
		if step.Bytes > 0 {
			names[i] += fmt.Sprintf(" after %d bytes", step.Bytes)
		}
		if len(step.Ways) > 0 {
			names[i] += fmt.Sprintf(" %v only", step.Ways)
		}
		if step.Forgotten {
			names[i] += ", forgotten"
		}
	}
	if s.Standby {
		names = append(names, "on the standby")
	}
	return strings.Join(names, ", ")
}

// Name returns the name of the attack, or "pair", and whether the relay was calm before a slot loss. The report
// groups strikes by it.
func (s Strike) Name() string {
	if len(s.Attacks) > 1 {
		return "pair"
	}
	if s.Load >= calmAfter {
		return string(s.Attacks[0].Attack) + ", calm"
	}
	return string(s.Attacks[0].Attack)
}

// A Nemesis draws strikes. Equal seeds and weights give equal strikes.
type Nemesis struct {
	rng     *rand.Rand
	attacks []Attack
	weights map[Attack]int
}

// NewNemesis returns a Nemesis that draws the attacks with a positive weight.
func NewNemesis(seed uint64, weights map[Attack]int) *Nemesis {
	attacks := slices.Sorted(maps.Keys(weights))
	attacks = slices.DeleteFunc(attacks, func(a Attack) bool { return weights[a] <= 0 })
	return &Nemesis{rng: rand.New(rand.NewPCG(seed, 1)), attacks: attacks, weights: weights}
}

// Next draws a strike.
func (n *Nemesis) Next() Strike {
	s := Strike{
		Load: n.between(100*time.Millisecond, 300*time.Millisecond), Attacks: []Step{n.step(n.draw(n.attacks))}, Standby: n.rng.IntN(5) == 0,
	}
	if s.Has(SlotDrop, SlotRecreate) && n.rng.IntN(2) == 0 { // otherwise the newest snapshot may be from before several faults
		s.Load = n.between(calmAfter, calmAfter+time.Second)
	}
	if n.rng.IntN(100) >= pairs {
		return s
	}
	first := s.Attacks[0].Attack.Target()
	others := slices.DeleteFunc(slices.Clone(n.attacks), func(a Attack) bool { return a.Target() == first })
	if len(others) > 0 {
		second := n.step(n.draw(others))
		second.After = n.between(0, 200*time.Millisecond)
		s.Attacks = append(s.Attacks, second)
	}
	return s
}

func (n *Nemesis) draw(from []Attack) Attack {
	total := 0
	for _, a := range from {
		total += n.weights[a]
	}
	left := n.rng.IntN(total)
	for _, a := range from {
		if left -= n.weights[a]; left < 0 {
			return a
		}
	}
	panic("unreachable: the weights are positive")
}

func (n *Nemesis) step(a Attack) Step {
	s := Step{Attack: a}
	if a == RelayPause || a == BrokerPause || a == PublicationDrop {
		s.Hold = n.between(20*time.Millisecond, time.Second)
	}
	if a == RelayFreeze || a == HolePostgres || a == HoleHost { // most are longer than SenderTimeout
		s.Hold = n.between(SenderTimeout/2, 2*SenderTimeout)
	}
	if a == HoleBroker {
		s.Hold = n.between(20*time.Millisecond, SenderTimeout)
	}
	if a == HolePostgres || a == HoleHost {
		s.Forgotten = n.rng.IntN(3) == 0
	}
	if way := n.rng.IntN(4); way < int(stream.NumDirections) && (a == HolePostgres || a == HoleBroker) {
		s.Ways = []stream.Direction{stream.Direction(way)}
	}
	if a == CutPostgres || a == CutBroker {
		answers := n.rng.IntN(2) == 0
		if answers {
			s.Direction = stream.Downstream
		}
		s.Bytes = 1 + n.rng.Int64N(50) // the direction of short messages: positions, acks
		if answers == (a == CutPostgres) {
			s.Bytes = 1 + n.rng.Int64N(20_000) // the direction of rows or records
		}
	}
	return s
}

func (n *Nemesis) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(n.rng.Int64N(int64(high-low)))).Round(time.Millisecond)
}
