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
	fits   func(*world) bool
	strike func(*nemesis)
}

var troubles = []trouble{
	{4, always, (*nemesis).cutSource},
	{2, always, (*nemesis).freezeSource},
	{1, always, (*nemesis).dig},
	{2, always, (*nemesis).terminate},
	{2, always, (*nemesis).crashPostgres},
	{2, always, (*nemesis).stopPostgres},
	{3, always, (*nemesis).promoteStandby},
	{4, always, func(n *nemesis) { n.postgres.checkpoint() }},
	{4, always, (*nemesis).cutSink},
	{1, always, (*nemesis).freezeSink},
	{2, always, (*nemesis).failBroker},
	{3, (*world).overKafka, (*nemesis).moveLeader},
	{2, (*world).overKafka, (*nemesis).staleLeaders},
	{1, (*world).overKafka, func(n *nemesis) { n.kafka.grow() }},
	{4, always, func(n *nemesis) { n.victim().orders <- kill }},
	{2, always, func(n *nemesis) { n.victim().orders <- term }},
	{2, always, (*nemesis).loseSource},
	{3, always, (*nemesis).isolate},
	{3, always, (*nemesis).stopProcess},
}

// run injects faults until ctx ends, and returns when all faults that have a duration are over. The
// seed determines how often each fault occurs, and which share of the requests to the broker fails.
func (n *nemesis) run(ctx context.Context) {
	weights := make([]int, len(troubles))
	total := 0
	for i, t := range troubles {
		if n.rng.IntN(3) > 0 && t.fits(n.world) {
			weights[i] = t.weight
		}
		total += weights[i]
	}
	n.broker.setFates(n)
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

// weights returns the probabilities of kinds of request faults.
func (n *nemesis) weights(kinds []fateKind) (w [fateKinds]int) {
	for _, kind := range kinds {
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

// isolate cuts a relay off from Postgres or from the broker, in one direction or both.
func (n *nemesis) isolate() {
	b := block{to: isBroker, in: true, out: true, until: time.Now().Add(n.duration(10 * time.Second))}
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
	n.history.note("nemesis: run %d is cut off from postgres %t, from the broker %t, in %t, out %t, until %s",
		h.run, b.to(postgresAddr), b.to("broker"), b.in, b.out, b.until.Sub(n.history.began))
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
	servers := n.broker.servers()
	for _, c := range servers[n.rng.IntN(len(servers))] {
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
	n.repair(2*time.Second, n.broker.failOne(n.rng))
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
	n.broker.heal()
	forgive := func(c *conn) {
		c.in.breakAfter(0, nil)
		c.out.breakAfter(0, nil)
	}
	n.postgres.each(func(c *client) { forgive(c.conn) })
	for _, conns := range n.broker.servers() {
		for _, c := range conns {
			forgive(c)
		}
	}
}
