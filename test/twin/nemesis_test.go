package twin

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A nemesis injects faults.
type nemesis struct {
	*world
	rng      *rand.Rand
	restarts turn // only one restart of Postgres at a time
	repairs  sync.WaitGroup
}

// A trouble is a kind of fault.
type trouble struct {
	weight int
	strike func(*nemesis)
}

var troubles = []trouble{
	{4, (*nemesis).cutSource},
	{2, (*nemesis).freezeSource},
	{1, (*nemesis).dig},
	{2, (*nemesis).terminate},
	{2, (*nemesis).crashPostgres},
	{2, (*nemesis).stopPostgres},
	{3, (*nemesis).promoteStandby},
	{4, func(n *nemesis) { n.postgres.checkpoint() }},
	{4, (*nemesis).cutSink},
	{1, (*nemesis).freezeSink},
	{2, (*nemesis).failBroker},
	{3, (*nemesis).moveLeader},
	{2, (*nemesis).staleLeaders},
	{1, func(n *nemesis) { n.kafka.grow() }},
	{4, func(n *nemesis) { n.victim().orders <- kill }},
	{2, func(n *nemesis) { n.victim().orders <- term }},
	{2, (*nemesis).loseSource},
	{3, (*nemesis).isolate},
	{3, (*nemesis).stopProcess},
}

// run injects faults until ctx ends, and returns when all faults that have a duration are over. The
// seed determines how often each fault occurs, and which share of the requests to Kafka fails.
func (n *nemesis) run(ctx context.Context) {
	weights := make([]int, len(troubles))
	total := 0
	for i, t := range troubles {
		if n.rng.IntN(3) > 0 {
			weights[i] = t.weight
		}
		total += weights[i]
	}
	n.kafka.mu.Lock()
	n.kafka.fates.weights = n.weights()
	n.kafka.mu.Unlock()
	pace := float64(time.Second) * (0.1 + 3*n.rng.Float64())
	for {
		n.sleep(ctx, time.Duration(n.rng.ExpFloat64()*pace))
		if ctx.Err() != nil {
			break
		}
		for i, at := 0, n.rng.IntN(max(total, 1)); i < len(weights); i++ {
			if at -= weights[i]; at < 0 {
				troubles[i].strike(n)
				break
			}
		}
	}
	n.repairs.Wait()
}

func (n *nemesis) weights() (w [fateKinds]int) {
	for kind := slow; kind < fateKinds; kind++ {
		if n.rng.IntN(3) == 0 {
			w[kind] = n.rng.IntN(80)
		}
	}
	if n.rng.IntN(3) > 0 {
		w[forgotten] = 0 // after it, the history allows duplicates
	}
	return w
}

// duration returns a random duration with the given mean.
func (n *nemesis) duration(mean time.Duration) time.Duration {
	return min(time.Duration(n.rng.ExpFloat64()*float64(mean)), 10*mean)
}

// repair calls f after a random time with the given mean.
func (n *nemesis) repair(mean time.Duration, f func()) {
	d := n.duration(mean)
	n.repairs.Go(func() {
		time.Sleep(d)
		f()
	})
}

// breakLater closes a connection after a random number of bytes.
func (n *nemesis) breakLater(c *conn) {
	way, lossy := c.in, n.rng.IntN(2) == 0
	if n.rng.IntN(3) > 0 {
		way = c.out
	}
	way.breakAfter(1+n.rng.IntN(1+n.rng.IntN(20_000)), func() { c.cut(lossy) })
}

func (n *nemesis) cutSource() {
	n.history.note("nemesis: connections to postgres will break")
	n.postgres.each(func(c *client) { n.breakLater(c.conn) })
}

func (n *nemesis) freezeSource() {
	d := n.duration(5 * time.Second)
	n.history.note("nemesis: connections to postgres freeze for %s", d)
	n.postgres.each(func(c *client) { c.conn.freeze(d) })
}

func (n *nemesis) dig() {
	d := n.duration(3 * time.Second)
	n.history.note("nemesis: postgres cannot be reached for %s", d)
	n.net.dig(d)
}

// victim returns a random relay.
func (n *nemesis) victim() *replica { return n.replicas[n.rng.IntN(len(n.replicas))] }

// loseSource makes the server give up its connections without informing the relays.
func (n *nemesis) loseSource() {
	n.history.note("nemesis: postgres gives up its connections in silence")
	n.postgres.each((*client).lose)
}

// isolate cuts a relay off from Postgres or from Kafka, in one direction or both.
func (n *nemesis) isolate() {
	b := block{to: isKafka, in: true, out: true, until: time.Now().Add(n.duration(10 * time.Second))}
	if n.rng.IntN(2) == 0 {
		b.to = isPostgres
	}
	switch n.rng.IntN(3) {
	case 0:
		b.in = false
	case 1:
		b.out = false
	}
	n.block(b)
}

// stopProcess pauses a relay. If there is another relay, the pause is usually longer than the timeouts. In
// half of the cases, Postgres gives up the connection at once.
func (n *nemesis) stopProcess() {
	d := n.duration(3 * time.Second)
	if len(n.replicas) > 1 {
		d = n.duration(100 * time.Second)
	}
	run := n.block(block{to: everywhere, in: true, out: true, until: time.Now().Add(d)})
	if n.rng.IntN(2) == 0 {
		n.postgres.lose(run)
	}
}

// block blocks a part of the network of a random relay, and returns the relay's run.
func (n *nemesis) block(b block) int {
	h := n.victim().host()
	n.history.note("nemesis: run %d is cut off from postgres %t, from kafka %t, in %t, out %t, until %s",
		h.run, b.to(postgresAddr), b.to("kafka"), b.in, b.out, b.until.Sub(n.history.began))
	h.block(b)
	n.repairs.Go(func() { time.Sleep(time.Until(b.until)) })
	return h.run
}

// terminate ends all connections to Postgres like pg_terminate_backend.
func (n *nemesis) terminate() {
	n.history.note("nemesis: connections to postgres are terminated")
	n.postgres.each(func(c *client) { c.terminate() })
}

func (n *nemesis) crashPostgres() {
	n.repairs.Go(func() {
		n.restarts.take()
		n.postgres.crash()
		n.restarts.give()
	})
	n.repair(time.Second, n.startPostgres)
}

func (n *nemesis) promoteStandby() {
	lost := n.rng.IntN(2) * n.rng.IntN(30) // half of the standbys have all transactions, as with synchronized_standby_slots
	n.repairs.Go(func() {
		n.restarts.take()
		defer n.restarts.give()
		n.postgres.crash()
		if n.history.mayPromote() {
			n.postgres.promote(lost)
		}
	})
	n.repair(time.Second, n.startPostgres)
}

func (n *nemesis) stopPostgres() {
	n.repairs.Go(func() {
		n.restarts.take()
		defer n.restarts.give()
		n.postgres.stop()
	})
	n.repair(time.Second, n.startPostgres)
}

func (n *nemesis) startPostgres() {
	n.restarts.take()
	defer n.restarts.give()
	n.postgres.start()
}

// brokers calls f for every connection to a random broker.
func (n *nemesis) brokers(f func(*conn)) {
	n.kafka.mu.Lock()
	defer n.kafka.mu.Unlock()
	for _, c := range n.kafka.nodes[n.rng.IntN(len(n.kafka.nodes))].sortedConns() {
		f(c)
	}
}

func (n *nemesis) cutSink() {
	n.history.note("nemesis: connections to a broker will break")
	n.brokers(n.breakLater)
}

func (n *nemesis) freezeSink() {
	d := n.duration(5 * time.Second)
	n.history.note("nemesis: connections to a broker freeze for %s", d)
	n.brokers(func(c *conn) { c.freeze(d) })
}

func (n *nemesis) failBroker() {
	broker := n.kafka.nodes[n.rng.IntN(len(n.kafka.nodes))]
	n.kafka.fail(broker)
	n.repair(2*time.Second, func() { n.kafka.up(broker) })
}

func (n *nemesis) staleLeaders() {
	broker := n.kafka.nodes[n.rng.IntN(len(n.kafka.nodes))]
	n.kafka.forgetLeaders(broker, true)
	n.repair(5*time.Second, func() { n.kafka.forgetLeaders(broker, false) })
}

func (n *nemesis) moveLeader() {
	n.kafka.move()
	n.repair(time.Second, func() { n.kafka.move() })
}

// peace ends all faults.
func (n *nemesis) peace() {
	n.startPostgres()
	n.kafka.heal()
	forgive := func(c *conn) {
		c.in.breakAfter(0, nil)
		c.out.breakAfter(0, nil)
	}
	n.postgres.each(func(c *client) { forgive(c.conn) })
	n.kafka.mu.Lock()
	defer n.kafka.mu.Unlock()
	for _, broker := range n.kafka.nodes {
		for _, c := range broker.sortedConns() {
			forgive(c)
		}
	}
}
