package twin

import (
	"math/rand/v2"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// A scene is one thing that goes wrong in a world at peace, where it can be said exactly what has to
// happen meanwhile. All the while the slot must not be free for long.
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

// playScene plays one that fits.
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

// commitRows commits some transactions of one row.
func (w *world) commitRows() {
	for range 30 {
		w.commitRow(topics[0])
	}
}

// hasRoom reports whether a record that waits for its leader leaves others room in the window.
func (w *world) hasRoom() bool {
	return w.sink.WindowRecords != 1 && len(w.kafka.topics[topics[0]]) > 0 && len(w.kafka.topics[topics[1]]) > 0
}

// leaderless: the slot is taken again at once, and other topics go on.
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

// brokerless: the slot is taken again at once, also after it was left to others for a second, and rows are
// sent as soon as a broker answers.
func (w *world) brokerless() {
	for _, n := range w.kafka.nodes {
		w.kafka.fail(n)
	}
	w.commitRow(topics[0])
	time.Sleep(time.Second)
	w.postgres.each((*client).terminate)
	time.Sleep(time.Duration(30+w.runs.Load()%3*60) * time.Second)
	w.kafka.heal()
	w.arrive(soon)
}

// records reports whether there are position records.
func (w *world) records() bool { return w.history.kept }

// unsafe: the relay takes the slot, and waits with it.
func (w *world) unsafe() {
	w.rest()
	w.kafka.setUnsafe(positions)
	w.launch()
	w.history.calmFrom(time.Now())
	w.commitRow(topics[0])
	time.Sleep(30 * time.Second)
	w.kafka.setUnsafe("")
	w.arrive(soon)
}

// endless: a relay does not try again and again without a pause.
func (w *world) endless() {
	most := 2 * len(w.replicas) // sessions a second
	w.history.stormy()
	w.postgres.endStreams(true)
	w.postgres.each((*client).terminate)
	before, span := w.history.sessions(), 30*time.Second
	time.Sleep(span)
	if n := w.history.sessions() - before; n > most*int(span.Seconds()) {
		w.history.violated("%d sessions within %s that end at once", n, span)
	}
	w.postgres.endStreams(false)
	w.history.calmFrom(time.Now())
	w.arrive(soon)
}

// overtaken: a relay that is cut off from both servers loses the slot to another one. Its paths come
// back one after the other, and it sends nothing that it had not sent before.
func (w *world) overtaken() {
	h, timeout := w.contested(), w.postgres.timeout
	first, second := time.Now().Add(2*timeout+30*time.Second), time.Now().Add(2*timeout+time.Minute)
	if w.runs.Load()%2 == 0 {
		first, second = second, first
	}
	h.block(block{to: isKafka, in: true, out: true, until: first})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	h.block(block{to: isPostgres, in: true, out: true, until: second})
	time.Sleep(timeout * 3 / 4)
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(2*timeout + time.Minute)
}

// isPatient reports whether a relay that hears nothing from Postgres goes on for several seconds.
func (w *world) isPatient() bool { return w.postgres.timeout >= 30*time.Second }

// unaware: a relay loses the slot in silence, and hears it from the brokers.
func (w *world) unaware() {
	h := w.contested()
	h.block(block{to: isKafka, in: true, out: true, until: time.Now().Add(3 * time.Second)})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(w.postgres.timeout)
}

// deafened: a relay hears nothing for longer than it may go on without, and then a keepalive from before it
// has lost the slot.
func (w *world) deafened() {
	h, timeout := w.contested(), w.postgres.timeout
	until := time.Now().Add(timeout * 9 / 10)
	h.block(block{to: isKafka, in: true, out: true, until: until.Add(-10 * time.Second)})
	w.commitRows()
	time.Sleep(100 * time.Millisecond)
	h.block(block{to: isPostgres, in: true, out: true, until: until})
	w.history.deafen(h.run, time.Now().Add(timeout/2+time.Second))
	time.Sleep(timeout * 6 / 10) // the server has asked for a reply by then
	w.postgres.lose(h.run)
	w.commitRows()
	w.arrive(soon)
	time.Sleep(timeout)
}

// contested sees to it that a second relay waits for the slot, and returns where the one is that has it.
func (w *world) contested() (h *host) {
	if len(w.replicas) == 1 {
		w.launch()
		time.Sleep(5 * time.Second)
	}
	h = w.replicas[0].host() // nobody has the slot: that is judged
	for _, r := range w.replicas {
		if w.history.holds(r.host().run) {
			h = r.host()
		}
	}
	return h
}

// remembers reports whether what the next session starts with is known to be the position that the last one
// had: there is a record, or one process only.
func (w *world) remembers() bool { return w.history.kept || len(w.replicas) == 1 }

// advanced: rows are lost, and the relay says so.
func (w *world) advanced() {
	w.history.stormy()
	w.postgres.advance(func() { w.commitRow(topics[0]) })
	w.history.stopJudging()
	time.Sleep(10 * time.Second)
	w.judgeGap()
}

// hasOlderRecord reports whether the position topic holds a position from before the slot's.
func (w *world) hasOlderRecord() bool { return w.history.kept && w.kafka.olderRecords(w) > 0 }

// restored: the relay does not go on from a position that is not the slot's.
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

// olderRecords returns how many of the first batches in the position topic say a position from before the
// slot's, 0 if none does.
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

// judgeGap judges whether a gap was noticed.
func (w *world) judgeGap() {
	if w.history.resumeJudging(); !w.history.noticed() {
		w.history.violated("nobody has noticed that rows may be missing")
	}
	w.history.stopJudging() // the rows are lost
}
