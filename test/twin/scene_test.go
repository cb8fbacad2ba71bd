package twin

import (
	"math/rand/v2"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// A scene is a single fault in a healthy world, for which the correct behavior is known exactly. In most
// scenes the slot must not be free for long.
type scene struct {
	name string
	fits func(*world) bool
	play func(*world)
}

var scenes = []scene{
	{"a topic has no leader when the source is lost", (*world).hasRoom, (*world).leaderless},
	{"no broker answers when the source is lost", always, (*world).brokerless},
	{"a relay starts while the position topic takes no records", (*world).records, (*world).unsafe},
	{"the server ends every stream at once", always, (*world).endless},
	{"a relay is overtaken", always, (*world).overtaken},
	{"a relay hears a keepalive when it is too late", (*world).isPatient, (*world).deafened},
	{"a relay is overtaken and does not know it", (*world).isPatient, (*world).unaware},
	{"somebody advances the slot", (*world).remembers, (*world).advanced},
	{"an older log of the position topic is restored", (*world).hasOlderRecord, (*world).restored},
}

func always(*world) bool { return true }

// playScene plays a random scene that fits the world.
func (w *world) playScene(rng *rand.Rand) {
	for {
		if s := scenes[rng.IntN(len(scenes))]; s.fits(w) {
			w.history.note("scene: %s", s.name)
			s.play(w)
			return
		}
	}
}

// commitRow commits one row.
func (w *world) commitRow(topic string) (r *row) {
	w.postgres.commit(func(tx *transaction) {
		r = w.postgres.newRow(topic, "key-0", 10, false)
		tx.rows = []*row{r}
	})
	return r
}

// commitRows commits 30 transactions with one row each.
func (w *world) commitRows() {
	for range 30 {
		w.commitRow(topics[0])
	}
}

// hasRoom reports whether the broker has leaders, and the window has room for other records while one record waits for its leader.
func (w *world) hasRoom() bool {
	return w.overKafka() && w.kafka.config.WindowRecords != 1 && len(w.kafka.topics[topics[0]]) > 0 && len(w.kafka.topics[topics[1]]) > 0
}

// leaderless: the relay acquires the slot again at once, and other topics receive their rows.
func (w *world) leaderless() {
	w.kafka.depose(topics[1])
	w.commitRow(topics[1])
	time.Sleep(time.Second)
	w.postgres.each((*client).terminate)
	others := w.commitRow(topics[0])
	time.Sleep(10 * time.Second)
	if !w.history.isStored(others) {
		w.history.violated("a row of topic %s waits for the leader of topic %s", topics[0], topics[1])
	}
	w.kafka.heal()
	w.arrive(soon)
}

// brokerless: the relay acquires the slot again at once, even if it had released it for a second for
// another relay. It sends rows as soon as a broker responds.
func (w *world) brokerless() {
	w.broker.failAll()
	w.commitRow(topics[0])
	time.Sleep(time.Second)
	w.postgres.each((*client).terminate)
	time.Sleep(time.Duration(30+w.runs.Load()%3*60) * time.Second)
	w.broker.heal()
	w.arrive(soon)
}

// records reports whether the relay writes position records.
func (w *world) records() bool { return w.history.kept }

// unsafe: the relay acquires the slot and keeps it while it waits for the position topic.
func (w *world) unsafe() {
	w.rest()
	w.broker.setUnsafe(positions)
	w.launch()
	w.history.calmFrom(time.Now())
	w.commitRow(topics[0])
	time.Sleep(30 * time.Second)
	w.broker.setUnsafe("")
	w.arrive(soon)
}

// endless: a relay pauses between sessions that end at once.
func (w *world) endless() {
	most := 2 * len(w.replicas) // sessions per second
	w.history.stormy()
	w.postgres.endStreams(true)
	w.postgres.each((*client).terminate)
	before, period := w.history.sessions(), 30*time.Second
	time.Sleep(period)
	if n := w.history.sessions() - before; n > most*int(period.Seconds()) {
		w.history.violated("%d sessions within %s that end at once", n, period)
	}
	w.postgres.endStreams(false)
	w.history.calmFrom(time.Now())
	w.arrive(soon)
}

// overtaken: a relay that is cut off from both servers loses the slot to another relay. Its connections
// to the two servers work again one after the other. The relay sends no new records.
func (w *world) overtaken() {
	h, timeout := w.contested(), w.postgres.timeout
	first, second := time.Now().Add(2*timeout+30*time.Second), time.Now().Add(2*timeout+time.Minute)
	if w.runs.Load()%2 == 0 {
		first, second = second, first
	}
	h.block(block{to: isBroker, in: true, out: true, until: first})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	h.block(block{to: isPostgres, in: true, out: true, until: second})
	time.Sleep(timeout * 3 / 4)
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(2*timeout + time.Minute)
}

// isPatient reports whether wal_sender_timeout is long enough for a relay to continue for several seconds
// without a message from Postgres.
func (w *world) isPatient() bool { return w.postgres.timeout >= 30*time.Second }

// unaware: a relay loses the slot without an error from Postgres. It learns that from the brokers, which
// reject its records.
func (w *world) unaware() {
	h := w.contested()
	h.block(block{to: isBroker, in: true, out: true, until: time.Now().Add(3 * time.Second)})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(w.postgres.timeout)
}

// deafened: a relay receives nothing from Postgres for longer than it may continue. Then it receives a
// keepalive that Postgres sent before the relay lost the slot.
func (w *world) deafened() {
	h, timeout := w.contested(), w.postgres.timeout
	until := time.Now().Add(timeout * 9 / 10)
	h.block(block{to: isBroker, in: true, out: true, until: until.Add(-10 * time.Second)})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	h.block(block{to: isPostgres, in: true, out: true, until: until})
	w.history.deafen(h.run, time.Now().Add(timeout/2+time.Second))
	time.Sleep(timeout * 6 / 10) // by then the server has requested a reply
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(timeout)
}

// contested makes sure that a second relay waits for the slot, and returns the host of the relay that
// holds it.
func (w *world) contested() (h *host) {
	if len(w.replicas) == 1 {
		w.launch()
		time.Sleep(5 * time.Second)
	}
	h = w.replicas[0].host() // used if no relay holds the slot, which the history reports
	for _, r := range w.replicas {
		if w.history.holds(r.host().run) {
			h = r.host()
		}
	}
	return h
}

// remembers reports whether the next session can know the position of the last one: from the position
// record, or because there is only one process.
func (w *world) remembers() bool { return w.history.kept || len(w.replicas) == 1 }

// advanced: rows are lost, and the relay reports it.
func (w *world) advanced() {
	w.history.stormy()
	w.postgres.advance(func() { w.commitRow(topics[0]) })
	w.history.stopJudging()
	time.Sleep(10 * time.Second)
	w.judgeGap()
}

// hasOlderRecord reports whether the position topic contains a position before that of the slot.
func (w *world) hasOlderRecord() bool {
	return w.overKafka() && w.history.kept && w.kafka.olderRecords(w) > 0
}

// restored: the relay does not continue if the position record is older than the slot's position.
func (w *world) restored() {
	w.rest()
	p := w.kafka.topics[positions][0]
	p.batches = p.batches[:w.kafka.olderRecords(w)]
	p.end = p.batches[len(p.batches)-1].last + 1
	w.history.stopJudging()
	w.launch()
	time.Sleep(10 * time.Second)
	w.judgeGap()
}

// olderRecords returns the length of a prefix of the position topic whose newest position is before that of
// the slot, or 0 if there is none.
func (k *cluster) olderRecords(w *world) int {
	older := 0
	for i, b := range k.topics[positions][0].batches {
		var p checkpoint.Position
		if p.UnmarshalJSON([]byte(b.value)) != nil {
			continue
		}
		if p.EndLSN >= w.postgres.confirmedLSN() || p.Timeline != w.postgres.timeline {
			return older
		}
		if p.EndLSN > 0 {
			older = i + 1
		}
	}
	return older
}

// judgeGap reports a violation unless a relay has detected the gap.
func (w *world) judgeGap() {
	if w.history.resumeJudging(); !w.history.noticed() {
		w.history.violated("nobody has noticed that rows may be missing")
	}
	w.history.stopJudging() // the lost rows are expected
}
