package twin

import (
	"errors"
	"net"
	"sync"
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
		began := w.history.sessions()
		w.await(func() bool { return w.history.sessions() > began })
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
		h.block(block{to: isBroker, in: true, out: true, until: time.Now().Add(3 * time.Second)})
		w.commitRows()
		time.Sleep(100 * time.Millisecond)
		w.postgres.lose(h.run)
		w.arrive(soon)
		time.Sleep(w.postgres.timeout)
		w.replicas[1].quit()
		w.replicas = w.replicas[:1]
		w.await(func() bool { return w.history.holds(h.run) })
		w.rest()
	})
}

// The record that a relay reads before it becomes the owner may be that of a relay that got the slot meanwhile, and be ahead of what
// the server was like before. That is no gap: the slot is not lost, it belongs to the other one.
func TestRecordOfALaterOwner(t *testing.T) {
	inPeace(t, func(w *world) {
		w.cfg.RefillOnLoss = false
		w.launch()
		time.Sleep(5 * time.Second)
		w.launch()
		time.Sleep(5 * time.Second)
		second := w.replicas[1].host()
		var stopping sync.WaitGroup
		stopping.Go(w.replicas[0].quit)
		w.await(func() bool { return w.history.holds(second.run) })
		second.block(block{to: isBroker, in: true, out: true, until: time.Now().Add(4 * time.Second)})
		stopping.Wait()
		w.replicas = w.replicas[1:]
		w.launch()
		time.Sleep(2 * time.Second) // the relay tries to read for the second time
		second.block(block{to: isPostgres, in: true, out: true, until: time.Now().Add(8 * time.Second)})
		w.postgres.lose(second.run)
		w.await(func() bool { return w.history.holds(w.replicas[1].host().run) })
		w.commitRows()
		w.arrive(soon)
		time.Sleep(w.postgres.timeout)
		if second != w.replicas[0].host() {
			w.history.violated("run %d has ended", second.run)
		}
		w.rest()
	})
}

// await waits for a condition.
func (w *world) await(holds func() bool) {
	for !holds() {
		time.Sleep(time.Millisecond)
	}
}

// A process that has exited reads nothing more, not even what arrives later. pgconn closes a connection in a goroutine of its own,
// which reads until the server closes the connection, and the deadline of that read may be lost.
func TestReadsEndWithTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(1)
		n.listen(postgresAddr, func(c *conn) {
			c.freeze(time.Hour)
			_, _ = c.Write([]byte("late"))
		})
		h := newHost(n, 1)
		c, err := h.dial(t.Context(), "tcp", postgresAddr)
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		h.leave()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the read ended with %v", err)
		}
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
