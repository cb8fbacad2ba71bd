package twin

import (
	"testing"
	"testing/synctest"
	"time"
)

// The check of a clean stop does not report what the world has caused itself. A stream that has started before the server stops
// ending streams continues.
func TestPeaceAfterEndedStreams(t *testing.T) {
	inPeace(t, func(w *world) {
		w.launch()
		w.commitRow(topics[0])
		w.arrive(soon)
		w.postgres.endStreams(true)
		w.postgres.each((*client).terminate)
		for before := w.history.sessions(); w.history.sessions() == before; {
			time.Sleep(time.Millisecond)
		}
		w.postgres.endStreams(false)
		before := w.history.sessions()
		time.Sleep(time.Second)
		if n := w.history.sessions() - before; n > 0 {
			w.history.violated("%d sessions since streams are not ended any more", n)
		}
		w.rest()
	})
}

// A relay that was superseded may still have unacknowledged records when it acquires the slot again. It need not wait for them if it
// is stopped before it streams.
func TestPeaceOfASupersededRelay(t *testing.T) {
	inPeace(t, func(w *world) {
		w.launch()
		time.Sleep(5 * time.Second)
		h := w.contested()
		h.block(block{to: isKafka, in: true, out: true, until: time.Now().Add(3 * time.Second)})
		w.commitRows()
		time.Sleep(100 * time.Millisecond)
		w.postgres.lose(h.run)
		w.arrive(soon)
		time.Sleep(w.postgres.timeout)
		w.replicas[1].quit()
		w.replicas = w.replicas[:1]
		for !w.history.holds(h.run) {
			time.Sleep(time.Millisecond)
		}
		w.rest()
	})
}

// inPeace plays a healthy world, which must end without violations.
func inPeace(t *testing.T, play func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.postgres.timeout = 30 * time.Second
		w.postgres.start()
		play(w)
		w.end()
		for _, v := range w.history.violations {
			t.Error(v)
		}
		if t.Failed() {
			t.Logf("history:\n%s", w.history)
		}
	})
}
