package crash

import (
	"cmp"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// With exactly_once, nothing is duplicated when the relay is killed, when the broker is killed, and when Kafka aborts a
// transaction because the relay was frozen for longer than transaction_timeout. The frozen relay continues by itself.
func TestExactlyOnceFaults(t *testing.T) {
	t.Parallel()
	const transactionTimeout = 10 * time.Second // see rig.ExactlyOnce
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{})
	r := rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), broker.Cluster)
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			process.Kill(t)
			process = r.Run(t)
			r.Progress(t)
			rig.Must(t, broker.Kill(t.Context()))
			rig.Must(t, broker.Restart(t.Context()))
			r.Recover(t)
		}
		for range 6 { // until it is frozen in the middle of a transaction
			r.Progress(t)
			process.Signal(t, syscall.SIGSTOP)
			time.Sleep(transactionTimeout + 12*time.Second) // transaction.abort.timed.out.transaction.cleanup.interval.ms is 10 s
			process.Signal(t, syscall.SIGCONT)
			r.Recover(t)
			if process.Times("Kafka has aborted the transaction") > 0 {
				break
			}
		}
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
	if n := process.Times("Kafka has aborted the transaction"); n == 0 {
		t.Errorf("no transaction was aborted:\n%s", process.Stderr)
	}
}

// With exactly_once, a dead letter is in the transaction of its row. While the relay and the broker are killed, each row that
// the relay or Kafka rejects becomes one dead letter, and every other row arrives once.
func TestExactlyOnceDeadLetters(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "kafkatest.Fake has no real transactions")
	broker := kafkatest.Start(t, kafkatest.Config{})
	srv := pgtest.Start(t, pgserver.Config{})
	r := rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), broker.Cluster)
	dead := r.Kafka.Topic(t, 3, map[string]string{"max.message.bytes": "10000000"})
	flags := []string{"--set", "on_bad_record=dead-letter", "--set", "dead_letter_topic=" + dead}
	process := r.Run(t, flags...)
	var bad map[string]int
	rig.UnderLoadAt(t, r, 20*time.Millisecond, func() {
		stop := insertBad(t, r)
		defer stop()
		for range rig.Cycles(t) {
			for range 4 {
				r.Progress(t)
				process.Kill(t)
				process = r.Run(t, flags...)
			}
			r.Progress(t)
			rig.Must(t, broker.Kill(t.Context()))
			rig.Must(t, broker.Restart(t.Context()))
			r.Recover(t)
		}
		bad = stop()
	})
	r.Confirmed(t)
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
	letters := 0
	for _, rec := range r.Kafka.ReadCommitted(t, dead) {
		letters++
		bad[cmp.Or(rig.Header(rec, "id"), rig.Header(rec, "dead_letter_column_id"))]++
	}
	t.Logf("%d bad rows, %d dead letters", len(bad), letters)
	for id, n := range bad {
		if n != 1 {
			t.Errorf("row %q has %d dead letters", id, n)
		}
	}
}

// insertBad inserts rows of two kinds until stop is called: the relay rejects one kind, and Kafka the other. stop returns
// the ids of the rows, all with 0.
func insertBad(t *testing.T, r *rig.Rig) (stop func() map[string]int) {
	t.Helper()
	conn := r.Connect(t)
	ids, stopped := make(map[string]int), make(chan struct{})
	var running sync.WaitGroup // waited for by stop
	running.Go(func() {
		for n := 0; ; n++ {
			headers, size := `{"id": "mine"}`, 1
			if n%4 == 0 {
				headers, size = "{}", 1_200_000 // the default of max.message.bytes is 1 MiB
			}
			var id string
			err := conn.QueryRow(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
				VALUES (gen_random_uuid(), 'order', $1, 'T', jsonb_build_object('pad', repeat('x', $2)), $3::jsonb) RETURNING id::text`,
				fmt.Sprint("bad ", n%8), size, headers).Scan(&id)
			if err != nil {
				t.Error(err)
				return
			}
			ids[id] = 0
			select {
			case <-time.After(100 * time.Millisecond):
			case <-stopped:
				return
			}
		}
	})
	return sync.OnceValue(func() map[string]int {
		close(stopped)
		running.Wait()
		return ids
	})
}

// A relay with exactly_once is frozen until a standby has taken over. When it continues, nothing that it still sends
// becomes visible.
func TestExactlyOnceZombie(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for a take-over")
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": "3s"}})
	r := rig.NewExactlyOnce(t, pgtest.DatabaseOn(t, srv), kafkatest.Broker(t))
	first := r.Run(t, "--set", "source.lease=3s")
	second := rig.Start(t, "run", "-c", r.Config, "--set", "source.lease=3s")
	second.Logged(t, "standby: another process uses the slot")
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			first.Signal(t, syscall.SIGSTOP)
			r.Recover(t) // by the standby
			first.Signal(t, syscall.SIGCONT)
			first, second = second, first
		}
		r.Progress(t)
	})
	r.Arrived(t)
	first.Terminate(t)
	second.Terminate(t)
	r.Settle(t, 0)
}
