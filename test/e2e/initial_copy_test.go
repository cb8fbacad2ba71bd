package e2e

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// arrivals returns how many records the topic has for each id.
func arrivals(t *testing.T, r *rig.Rig) map[string]int {
	t.Helper()
	n := make(map[string]int)
	for _, id := range ids(r.Kafka.ReadAll(t, r.Topic)) {
		n[id]++
	}
	return n
}

// repeated returns how many records are repetitions.
func repeated(arrivals map[string]int) (n int) {
	for _, times := range arrivals {
		n += times - 1
	}
	return n
}

// fill inserts rows before a relay starts. It uses one transaction, and Postgres can create no other slot
// on the server until that commits.
func fill(t *testing.T, r *rig.Rig, rows int) {
	t.Helper()
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'order', 'k' || n % 100, 'T', jsonb_build_object('n', repeat('x', 100))
		FROM generate_series(1, $1::int) n`, rows)
}

// The relay delivers existing rows first, and each row once, although writers are busy while Postgres
// creates the slot. A second start copies nothing.
func TestInitialCopy(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t, pgserver.Config{}) // Postgres creates a slot only after every open transaction of the server has ended
	w := watch(t, srv, kafkatest.Broker(t), `CREATE TABLE outbox `+outboxColumns)
	w.cfg.InitialCopy, w.cfg.Positions = true, position.Place{Topic: position.DefaultTopic}
	const before = 5000
	w.db.Exec(t, `INSERT INTO outbox SELECT n, $1, 'k', 'T', '{}' FROM generate_series(1, $2::int) n`, w.topic, before)
	var stop atomic.Bool
	var written atomic.Int64
	var writers sync.WaitGroup
	for i := range 4 {
		conn := w.db.Conn(t)
		writers.Go(func() {
			for n := 1; !stop.Load(); n++ {
				if _, err := conn.Exec(t.Context(), `INSERT INTO outbox VALUES ($1, $2, $3, 'T', '{}')`, (i+1)*1_000_000+n, w.topic, fmt.Sprint(i)); err != nil {
					t.Error(err)
					return
				}
				written.Add(1)
			}
		})
	}
	w.run(t)
	w.logged(t, "initial copy finished")
	enough := written.Load() + 100
	wait.For(t, "rows that are written after the copy", func() bool { return written.Load() >= enough })
	stop.Store(true)
	writers.Wait()
	total := pgtest.QueryRow[int](t, w.db, `SELECT count(*)::int FROM outbox`)
	w.kafka.ReadN(t, total, w.topic)
	rig.AwaitConfirmed(t, w.db.Conn(t), w.cfg.Source.Slot)
	w.stop()
	w.fails(t, exit.OK)
	w.run(t)
	w.stop()
	w.fails(t, exit.OK)

	records := w.kafka.ReadAll(t, w.topic)
	times := make(map[string]int)
	for i, id := range ids(records) {
		times[id]++
		if i < before && id != fmt.Sprint(i+1) {
			t.Fatalf("row %s is number %d", id, i+1)
		}
	}
	if len(records) != total || len(times) != total {
		t.Errorf("%d records of %d rows, there are %d", len(records), len(times), total)
	}
	if n := strings.Count(w.log.String(), "initial copy started"); n != 1 {
		t.Errorf("%d copies have begun", n)
	}
}

// saysUnfinished checks that status and check tell of a copy or refill that the last relay has not finished: its rows are not in the WAL.
func saysUnfinished(t *testing.T, what string, settings ...string) {
	t.Helper()
	for verb, says := range map[string]string{
		"status": "The " + what + " is not finished. Its rows are in the table, not in the WAL",
		"check":  "the " + what + " is not finished, its rows come from the table",
	} {
		out, code := rig.Command(t, append([]string{verb, "--set", "admin.listen="}, settings...)...)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), says) || strings.Contains(out, "Nothing is lost") {
			t.Errorf("%s, exit code %d, does not say %q:\n%s", verb, code, says, out)
		}
	}
}

// The next start repeats an unfinished copy, in constant memory, whether the relay was killed or stopped. It sends no row that is
// stored.
// Until the copy finishes, the relay confirms nothing, so it also delivers a row that was written and
// deleted meanwhile. A finished copy is never repeated.
func TestInitialCopyInterrupted(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills relays in a copy")
	for name, end := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			r, _ := rig.NewOwn(t)
			r.Collector.Stop() // its ledger does not know these rows
			rows := 3 * rig.Rows(t)
			fill(t, r, rows)
			args := []string{"run", "-c", r.Config, "--set", "source.initial_copy=true"}
			first := rig.Start(t, append(args, "--set", "sink.kafka.window.records=20")...) // so that it takes long enough
			r.Kafka.ReadN(t, 1000, r.Topic)
			first.Signal(t, end)
			first.Exit(t)
			if strings.Contains(first.Stderr.String(), "initial copy finished") {
				t.Fatal("the copy was finished before it could be interrupted")
			}
			conn := r.Connect(t)
			const point = `SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`
			made := rig.Ask[string](t, conn, point, r.Slot)
			if p := r.Recorded(t); !p.Copying || p.EndLSN.String() != made && p.EndLSN != 0 {
				t.Errorf("recorded is %+v, the slot is at %s", p, made)
			}

			const gone = "ffffffff-0000-4000-8000-000000000000"
			r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', 'k', 'T', '{}')`, gone)
			r.DB.Exec(t, `DELETE FROM outbox WHERE id = $1`, gone)
			r.Refused(t, exit.Continuity, "initial copy", "source.initial_copy", "--accept-gap")
			saysUnfinished(t, "initial copy", args[1:]...)
			second := rig.Start(t, args...)
			second.Logged(t, "the initial copy starts over, rows committed since the slot was created may be duplicated")
			second.Logged(t, "initial copy finished")
			r.Confirmed(t)
			second.Flat(t)
			second.Terminate(t)
			if p := r.Recorded(t); p.Copying {
				t.Errorf("recorded is %+v", p)
			}
			third := rig.Start(t, args...)
			third.Logged(t, "streaming")
			third.Terminate(t)
			if strings.Contains(third.Stderr.String(), "initial copy") {
				t.Error("a finished copy is made again")
			}
			times := arrivals(t, r)
			if n := repeated(times); len(times) != rows+1 || times[gone] != 1 || n > 0 {
				t.Errorf("%d rows have come of %d, the deleted one %d times, %d repeated", len(times), rows+1, times[gone], n)
			}
		})
	}
}

// A first start that is stopped while Postgres waits for an open transaction has created no slot. The next one creates it, also with
// source.on_slot_loss, because no slot was lost; status and check say so.
func TestInitialCopyStoppedBeforeTheSlot(t *testing.T) {
	t.Parallel()
	r, _ := rig.NewOwn(t)
	r.Collector.Stop()
	fill(t, r, 10)
	open, err := r.Connect(t).Begin(t.Context())
	rig.Must(t, err)
	_, err = open.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', '{}')`)
	rig.Must(t, err)
	r.DB.Exec(t, "CREATE PUBLICATION "+rig.Publication+" FOR TABLE outbox WITH (publish = 'insert')")
	settings := []string{"-c", r.Config, "--set", "source.initial_copy=true", "--set", "source.create=slot", "--set", "source.on_slot_loss=refill"}
	first := rig.Start(t, append([]string{"run"}, settings...)...)
	wait.For(t, "Postgres to wait", func() bool {
		return pgtest.QueryRow[bool](t, r.DB, `SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)`, r.Slot)
	})
	first.Terminate(t)

	for verb, says := range map[string]string{
		"status": "The first start has not created the slot",
		"check":  "the first start has not created the slot; the initial copy is not finished",
	} {
		out, code := rig.Command(t, append([]string{verb, "--set", "admin.listen="}, settings...)...)
		if !strings.Contains(out, says) || strings.Contains(out, "outbox-cdc recover") {
			t.Errorf("%s, exit code %d, does not say %q:\n%s", verb, code, says, out)
		}
	}
	rig.Must(t, open.Commit(t.Context()))
	second := rig.Start(t, append([]string{"run"}, settings...)...)
	second.Logged(t, "initial copy finished")
	r.Confirmed(t)
	second.Terminate(t)
	if times := arrivals(t, r); len(times) != 11 || repeated(times) > 0 {
		t.Errorf("%d rows have come of 11, %d repeated", len(times), repeated(times))
	}
}

// The relay rejects an initial copy without a position topic, and warns if the slot already existed.
func TestInitialCopyRefused(t *testing.T) {
	need.FullRun(t, "TestInitialCopy runs always")
	t.Parallel()
	r := rig.New(t)
	r.Collector.Stop()
	args := []string{"run", "-c", r.Config, "--set", "source.initial_copy=true"}
	out, code := rig.Command(t, append(args, "--set", "position_topic=")...)
	if code != exit.Usage || !strings.Contains(out, "position_topic") {
		t.Errorf("without position_topic: exit code %d\n%s", code, out)
	}
	if out, code := rig.Command(t, "setup", "-c", r.Config); code != 0 {
		t.Fatalf("setup: exit code %d\n%s", code, out)
	}
	process := rig.Start(t, args...)
	process.Logged(t, "no initial copy because the slot already existed")
	process.Logged(t, "streaming")
	process.Terminate(t)
}

// The newest row of a finished copy is the last delivered one, which recover looks for.
func TestInitialCopyHasAWitness(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a server of its own")
	r, _ := rig.NewOwn(t)
	r.Collector.Stop()
	fill(t, r, 10)
	newest := pgtest.QueryRow[string](t, r.DB, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'order', 'k', 'T', '{}') RETURNING xid::text`)
	process := rig.Start(t, "run", "-c", r.Config, "--set", "source.initial_copy=true")
	process.Logged(t, "initial copy finished")
	r.AwaitSnapshot(t)
	process.Terminate(t)
	if got := r.Recorded(t).Witness(); fmt.Sprint(got.XID) != newest || got.Hash == 0 {
		t.Errorf("the last delivered row is %+v, want one of transaction %s", got, newest)
	}
}

// If the stream is lost during a copy, another relay may acquire the slot. The copy, which has its own
// connection, therefore stops and starts again.
func TestInitialCopySenderTerminated(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until a lost session is detected")
	proxy := faultproxy.Start(t, "")
	r := rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafkatest.Fake(t, kfake.NumBrokers(1), kfake.ListenFn(proxy.Listen)).Cluster)
	r.Collector.Stop()
	const rows = 300_000
	fill(t, r, rows)
	conn := r.Connect(t) // connect now, because time is short later
	process := rig.Start(t, "run", "-c", r.Config, "--set", "source.initial_copy=true")
	process.Logged(t, "initial copy started")
	proxy.Refuse() // so that the copy does not finish before the stream is lost
	if !rig.Ask[bool](t, conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.Slot) {
		t.Fatal("no sender to terminate")
	}
	// The stream is full of keepalives and is not read. A status update, once a second, then shows the loss.
	process.Logged(t, "session ended")
	proxy.Accept()
	process.LoggedTimes(t, "msg=streaming", 2)
	process.Logged(t, `reason="the session was lost before all rows of the table were acknowledged"`)
	process.Logged(t, "initial copy finished")
	const last = "ffffffff-0000-4000-8000-000000000000"
	r.DB.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', 'k', 'T', '{}')`, last)
	r.Confirmed(t)
	process.Terminate(t)
	times := arrivals(t, r)
	if n := repeated(times); len(times) != rows+1 || n > 0 || r.Recorded(t).Copying {
		t.Errorf("%d rows have come of %d, %d repeated", len(times), rows+1, n)
	}
	if n := process.Times("initial copy started"); n != 2 {
		t.Errorf("%d copies have begun", n)
	}
}

// Two relays start at once, and another one becomes the owner of the position store before this one has announced its copy.
// The relay retries, and creates the slot itself because the other one has not.
func TestInitialCopyAnnouncedByTwo(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t, kfake.NumBrokers(1))
	var superseded atomic.Bool
	fake.Control.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.Control.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		if produce.Topics[0].Topic != position.DefaultTopic || !bytes.Contains(produce.Topics[0].Partitions[0].Records, []byte(`"copying":true`)) || superseded.Swap(true) {
			return nil, nil, false
		}
		rejected := kafkatest.Accept(produce)
		rejected.Topics[0].Partitions[0].ErrorCode = kerr.InvalidProducerEpoch.Code
		return rejected, nil, true
	})
	w := watch(t, pgtest.Start(t, pgserver.Config{}), fake.Cluster, `CREATE TABLE outbox `+outboxColumns)
	w.cfg.InitialCopy, w.cfg.Positions = true, position.Place{Topic: position.DefaultTopic}
	w.db.Exec(t, `INSERT INTO outbox SELECT n, $1, 'k', 'T', '{}' FROM generate_series(1, 10) n`, w.topic)
	w.run(t)
	w.logged(t, "initial copy finished")
	w.stop()
	w.fails(t, exit.OK)
	if n := len(w.kafka.ReadAll(t, w.topic)); n != 10 || !superseded.Load() {
		t.Errorf("%d records of 10 rows, another owner: %t", n, superseded.Load())
	}
}

// Two relays start at once. The test kills the one that copies, and the other one copies every row.
func TestInitialCopyTakenOver(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for the lease")
	r, _ := rig.NewOwn(t)
	r.Collector.Stop()
	const rows = 300_000
	fill(t, r, rows)
	args := []string{"run", "-c", r.Config, "--set", "source.initial_copy=true"}
	first, second := rig.Start(t, args...), rig.Start(t, args...)
	begun := func(p *rig.Process) bool { return p.Times("initial copy started") > 0 }
	wait.For(t, "a copy to begin", func() bool { return begun(first) || begun(second) })
	if begun(second) {
		first, second = second, first
	}
	second.Logged(t, "standby: another process uses the slot")
	if begun(second) || first.Times("initial copy finished") > 0 {
		t.Fatal("both copy, or it is over already")
	}
	first.Kill(t)
	second.Logged(t, "initial copy finished")
	r.Confirmed(t)
	second.Terminate(t)
	times := arrivals(t, r)
	if n := repeated(times); len(times) != rows || n > 0 || r.Recorded(t).Copying {
		t.Errorf("%d rows have come of %d, %d repeated", len(times), rows, n)
	}
}
