package twin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// The streams of random numbers. They are separate, so that a change in the use of one stream does not
// change the others.
const (
	drawWorld uint64 = iota + 1
	drawPostgres
	drawKafka
	drawWriter
	drawNemesis
	drawOperator
	drawSlotLoss
	drawQueue
)

// A broker is the simulated broker of a world.
type broker interface {
	connect(h *host) sink.Broker           // its configuration, for a process
	servers() [][]*conn                    // the connections of each server
	setFates(n *nemesis)                   // has requests fail at random
	failOne(rng *rand.Rand) (start func()) // ends a random server, until start is called
	failAll()                              // ends all servers, until heal
	heal()                                 // ends all faults
	end()                                  // ends all servers for good
	cure(serial int)                       // has them accept the poisonous values of the rows up to a number
	setUnsafe(place string)                // has them reject all that is written there; "": nothing
}

// A world is a simulation: one or two relays with their operators, and the servers.
type world struct {
	*testing.T
	seed     uint64
	net      *network
	history  *history
	postgres *postgres
	broker   broker
	kafka    *cluster             // the broker; nil: it is a queue
	cfg      relay.Config         // without the sink
	wrap     func(*conn) net.Conn // wraps connections to Postgres; for mutations
	deaf     time.Duration        // delay before a stopped run notices it; for mutations

	replicas  []*replica
	operating sync.WaitGroup // the operators
	zombies   sync.WaitGroup // the runs that have not ended, including killed ones
	runs      atomic.Int64   // number of runs so far
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, drawWorld))
	w := &world{
		T: t, seed: seed, net: newNetwork(seed),
		history: newHistory(), wrap: func(c *conn) net.Conn { return c },
	}
	w.postgres = newPostgres(w.net, w.history, rand.New(rand.NewPCG(seed, drawPostgres)))
	partitions := map[string]int{topics[0]: 1 + rng.IntN(4), topics[1]: 1 + rng.IntN(2), deadLetters: 1}
	w.kafka = newKafka(w.net, w.history, rand.New(rand.NewPCG(seed, drawKafka)), 1+rng.IntN(3), partitions)
	w.broker = w.kafka
	w.cfg = relay.Config{
		Positions: position.Place{Topic: positions},
		Name:      "twin",
		Tables:    []string{"outbox"},
		Source:    replication.Config{Publication: "pub", Slot: "slot", StatusInterval: time.Duration(100+rng.IntN(900)) * time.Millisecond},
		Route:     encode.Config{Names: kafka.Names{}, Columns: encode.DefaultColumns(), Topic: "${route}"},
	}
	w.kafka.config = kafka.Config{Brokers: w.kafka.addrs(), WindowRecords: []int{0, 1, 10, 100}[rng.IntN(4)], ConnectionsPerBroker: 1 + rng.IntN(3)}
	w.cfg.DrainTimeout = time.Duration(1+rng.IntN(25)) * time.Second
	if rng.IntN(8) == 0 {
		w.kafka.config.Compression = "gzip"
	}
	if rng.IntN(4) == 0 {
		w.kafka.config.CreateTopics = &kafka.TopicSpec{Partitions: 1 + rng.Int32N(4)}
		clear(w.kafka.topics)
	}
	if rng.IntN(5) == 0 {
		w.cfg.Positions = position.Place{}
	}
	w.history.kept = !w.cfg.Positions.IsZero()
	if rng.IntN(2) == 0 {
		w.cfg.DeadLetterTopic = deadLetters
		w.history.deadLetter = deadLetters
	}
	if w.history.kept && w.history.deadLetter != "" && rng.IntN(2) == 0 {
		w.parkKeys(true)
		w.cfg.RefillOnLoss = rng.IntN(6) == 0
	} else if w.history.kept && rng.IntN(2) == 0 {
		w.cfg.RefillOnLoss = true
	}
	return w
}

// newLaneWorld returns the world of a seed with a queue in place of Kafka. Everything else is the same.
func newLaneWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorld(t, seed)
	w.kafka, w.broker = nil, newQueue(w.net, w.history, rand.New(rand.NewPCG(seed, drawQueue)))
	return w
}

// overKafka reports whether the broker is Kafka.
func (w *world) overKafka() bool { return w.kafka != nil }

// launch adds a relay to the world.
func (w *world) launch() {
	r := w.newReplica()
	r.launch()
	w.operating.Go(r.operate)
	w.replicas = append(w.replicas, r)
}

// newReplica returns a relay without an operator.
func (w *world) newReplica() *replica {
	return &replica{
		world: w, rng: w.net.random(fmt.Sprint("operator ", len(w.replicas))),
		orders: make(chan order), stopped: make(chan error),
	}
}

// rest stops the relays, one after the other, and checks the slot and the position record.
func (w *world) rest() {
	w.history.stormy()
	for _, r := range w.replicas {
		r.quit()
	}
	w.operating.Wait()
	w.replicas = nil
	last := w.history.last()
	if record := w.history.recordedLSN(); w.history.kept && record > 0 && record < last {
		w.history.violated("the last transaction ends at %s, %s is recorded", last, record)
	}
	if slot := w.postgres.confirmedLSN(); slot < last {
		w.history.violated("the last transaction ends at %s, %s is confirmed", last, slot)
	}
}

// maxRows is the approximate maximum number of rows per seed.
const maxRows = 2000

// write commits transactions until ctx ends.
func (w *world) write(ctx context.Context) {
	rng := rand.New(rand.NewPCG(w.seed, drawWriter))
	pause := []float64{1, 20, 200, 1000}[rng.IntN(4)]
	keys := 1 + rng.IntN(8)
	poison := rng.IntN(4) == 0 || w.cfg.ParkedKeys > 0
	slow := func() {} // commits the slow transaction
	for written := 0; written < maxRows && ctx.Err() == nil; {
		if w.cfg.RefillOnLoss && rng.IntN(4) == 0 {
			slow()
			slow = w.postgres.begin(func() *row { return w.postgres.newRow(topics[0], "slow", 10, false) })
		}
		w.postgres.commit(func(tx *transaction) {
			rows := 0 // a transaction that changes other tables
			switch rng.IntN(10) {
			case 0, 1, 2:
			case 3:
				rows = rng.IntN(300)
			default:
				rows = 1 + rng.IntN(4)
			}
			written += rows
			for range rows {
				size := rng.IntN(50)
				if rng.IntN(30) == 0 {
					size = rng.IntN(9000)
				}
				if rng.IntN(1000) == 0 {
					size = 300_000 // more than the relay's buffers
				}
				topic := topics[max(rng.IntN(4)-2, 0)]
				tx.rows = append(tx.rows, w.postgres.newRow(topic, fmt.Sprintf("key-%d", rng.IntN(keys)), size, poison && rng.IntN(100) == 0))
			}
		})
		w.sleep(ctx, time.Duration(rng.ExpFloat64()*pause*float64(time.Millisecond)))
	}
	slow()
}

// sleep sleeps for d. It returns early if ctx ends.
func (w *world) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
