package crash

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/hostile"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// attackPace is the mean time between two attacks by a role.
const attackPace = 40 * time.Millisecond

// largeRows is the additional memory, in MB, that rows and messages of 2 or 3 MB may need: a message, its
// dead letter and its request.
const largeRows = 24

// Two roles, one with INSERT and one without privileges, attack a relay for OUTBOX_TEST_HOSTILE seconds:
// first a relay that delivers rows, then one that delivers messages and skips the rows of the published table.
// The relay neither stops nor slows down. Every valid row or message arrives once, also across clean restarts,
// and each attack has its expected outcome.
func TestHostileWriters(t *testing.T) {
	need.FullRun(t, "it writes for half a minute")
	seconds := time.Duration(rig.EnvInt(t, "OUTBOX_TEST_HOSTILE", 4)) * time.Second
	for _, messages := range []bool{false, true} {
		t.Run(fmt.Sprintf("messages=%t", messages), func(t *testing.T) {
			s := besiege(t, messages)
			s.start(t)
			rig.UnderLoad(t, s.Rig, func() { s.hold(t, seconds/2) })
			s.Arrived(t)
			s.Confirmed(t)
			s.stop(t)
			s.Settle(t, 0)
			s.checkLatency(t)
			s.checkRecords(t)
			s.checkPosition(t)
		})
	}
}

// hold attacks the relay for the duration d, and restarts it every few seconds.
func (s *siege) hold(t *testing.T, d time.Duration) {
	t.Helper()
	s.watch(t, &s.before, min(10*time.Second, d/2))
	end := s.attack(t)
	defer end()
	rounds := 1 + d/(15*time.Second)
	for range rounds {
		s.watch(t, &s.during, d/rounds)
		s.stop(t)
		s.start(t)
	}
}

// A siege is a relay that delivers rows or messages of every role.
type siege struct {
	*rig.Rig
	seed      uint64
	messages  bool
	xmax      string // of a snapshot from before the test's rows
	dead, own string
	writer    string // role with INSERT
	nobody    string // role without privileges
	process   *rig.Process
	starts    int
	peak      int // resident memory, in MB

	mu            sync.Mutex
	since         time.Time        // commits before this time are not measured; zero means that none is
	latencies     *[]time.Duration // of valid records, from commit to reader
	before        []time.Duration
	during        []time.Duration
	attacks       map[string]hostile.Attack // by id of the row
	expected, got map[hostile.Fate]int
	damage        []string
}

func besiege(t *testing.T, messages bool) *siege {
	t.Helper()
	s := &siege{Rig: rig.New(t), seed: rand.Uint64(), messages: messages, attacks: map[string]hostile.Attack{}, expected: map[hostile.Fate]int{}, got: map[hostile.Fate]int{}}
	t.Logf("seed %d", s.seed)
	s.xmax = rig.Ask[string](t, s.Connect(t), `SELECT pg_snapshot_xmax(pg_current_snapshot())::text`)
	s.dead, s.own = s.Kafka.Topic(t, 1, nil), s.Kafka.Topic(t, 1, nil)
	s.writer, s.nobody = "writer_"+s.DB.Name, "nobody_"+s.DB.Name
	s.DB.Exec(t, `ALTER TABLE outbox ADD topic text NOT NULL DEFAULT '`+s.Topic+`', ADD at timestamptz, ADD part integer, ADD trace text,
		DROP CONSTRAINT outbox_headers_check, ALTER payload TYPE json, ALTER headers TYPE json;
		CREATE ROLE `+s.writer+` LOGIN; GRANT INSERT ON outbox TO `+s.writer+`; CREATE ROLE `+s.nobody+` LOGIN;
		CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)
	s.Config = rig.WriteConfig(t, s.DB.DSN, s.Kafka.Addrs[0], s.Slot, "${route}", "on_bad_record: dead-letter\nmissing_topic_timeout: 5s\ndead_letter_topic: "+s.dead)
	if messages { // the rows tell the workload what is committed
		s.Load.Beside = `SELECT pg_logical_emit_message(true, '` + hostile.Rows + `', json_build_object('id', e.id, 'aggregatetype', $1::text, 'aggregateid', e.key, 'type', $2::text,
			'payload', e.payload::json, 'headers', '{}'::json, 'trace', NULL::text, 'topic', '` + s.Topic + `')::text)
			FROM unnest($3::uuid[], $4::text[], $5::text[]) WITH ORDINALITY AS e (id, key, payload, i) ORDER BY e.i`
	}
	s.Kafka.Collect(t, s.time, s.Topic)
	s.Kafka.Collect(t, s.takeDeadLetter, s.dead)
	s.Kafka.Collect(t, func(rec *kgo.Record) { s.came(rec, hostile.Delivered, rig.Header(rec, "id")) }, s.own)
	return s
}

func (s *siege) start(t *testing.T) {
	t.Helper()
	s.starts++
	taken := "outbox.columns.timestamp=at"
	if s.messages {
		taken = "outbox.messages=" + hostile.Rows
	}
	s.process = s.Run(t, "--set", taken, "--set", "source.create=slot", "--set", "outbox.columns.route=topic", "--set", "outbox.columns.trace_context=trace",
		"--set", `outbox.place=[{"column": "part", "to": "partition"}]`, "--set", "outbox.on_missing_column=ignore")
}

// stop stops the relay cleanly, and checks that the relay has found no foreign position record.
func (s *siege) stop(t *testing.T) {
	t.Helper()
	m := s.process.Memory(t)
	s.peak = max(s.peak, m.Peak)
	s.process.Terminate(t)
	if s.process.Times("foreign record in the position store ignored") > 0 {
		t.Error("the position topic has a foreign record")
	}
}

// watch measures the latency of valid records for the duration d.
func (s *siege) watch(t *testing.T, latencies *[]time.Duration, d time.Duration) {
	t.Helper()
	s.Progress(t)
	s.timed(latencies, time.Now())
	select {
	case <-time.After(d):
	case <-s.process.Done:
		t.Fatalf("the relay stopped with exit code %d", s.process.Cmd.ProcessState.ExitCode())
	}
	s.Progress(t)
	s.timed(nil, time.Time{})
}

func (s *siege) timed(latencies *[]time.Duration, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latencies, s.since = latencies, since
}

func (s *siege) time(rec *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latencies != nil && rec.Timestamp.After(s.since) {
		*s.latencies = append(*s.latencies, time.Since(rec.Timestamp))
	}
}

func (s *siege) count(fates map[hostile.Fate]int, f hostile.Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fates[f]++
}

// came compares the outcome of an attack with the expected one.
func (s *siege) came(rec *kgo.Record, f hostile.Fate, id string) {
	s.count(s.got, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.attacks[id]; ok && a.Fate != f {
		s.damage = append(s.damage, fmt.Sprintf("%s was %s, not %s: %.1000q; %.300s", a.Name, f, a.Fate, rec.Headers, a.Args[2:]))
	}
	delete(s.attacks, id)
}

// takeDeadLetter receives a dead letter, and checks that the relay itself has written it.
func (s *siege) takeDeadLetter(rec *kgo.Record) {
	s.came(rec, hostile.Rejected, cmp.Or(rig.Header(rec, "dead_letter_column_id"), rig.Header(rec, "id")))
	times := 0
	for _, h := range rec.Headers {
		if h.Key == "dead_letter_slot" && string(h.Value) == s.Slot {
			times++
		}
	}
	if times != 1 || rig.Header(rec, "dead_letter_reason") == "mine" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.damage = append(s.damage, fmt.Sprintf("dead letter %d has headers %.500s", rec.Offset, rec.Headers))
	}
}

// attack starts attacks by both roles, and returns a function that stops them. The first attack is a
// non-transactional message of 70 MiB.
func (s *siege) attack(t *testing.T) (end func()) {
	t.Helper()
	writer, nobody := s.as(t, s.writer), s.as(t, s.nobody)
	_, err := nobody.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'outbox-cdc', repeat('x', 70 << 20))`)
	rig.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var roles errgroup.Group
	roles.Go(func() error { return s.behave(ctx, writer, s.seed, (*hostile.Generator).Row) })
	roles.Go(func() error { return s.behave(ctx, nobody, s.seed+1, (*hostile.Generator).Message) })
	end = sync.OnceFunc(func() {
		stop()
		if err := roles.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

func (s *siege) as(t *testing.T, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), strings.Replace(s.DB.DSN, "//postgres@", "//"+role+"@", 1))
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// behave runs attacks by one role until ctx is done.
func (s *siege) behave(ctx context.Context, conn *pgx.Conn, seed uint64, next func(*hostile.Generator) hostile.Attack) error {
	g := hostile.NewGenerator(seed)
	g.Messages, g.Own, g.Slot = s.messages, s.own, s.Slot
	g.Relay = []string{position.DefaultTopic, s.dead, "__consumer_offsets", "__transaction_state"}
	pauses := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		a := next(g)
		s.announce(&a)
		_, err := conn.Exec(context.WithoutCancel(ctx), a.SQL, a.Args...)
		_, refused := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil:
			s.count(s.expected, a.Fate)
		case refused && !conn.IsClosed():
			s.count(s.expected, hostile.Refused)
		default:
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		time.Sleep(time.Duration(pauses.Int64N(int64(2 * attackPace))))
	}
	return nil
}

// announce records the expected outcome of an attack that has a row.
func (s *siege) announce(a *hostile.Attack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.ID != "" {
		s.attacks[a.ID] = *a
	}
}

// checkLatency checks that the latency of valid records has hardly changed, if OUTBOX_TEST_HOSTILE is set. Otherwise the
// suite shares the machine with others, and attackers and honest writers may together write more than it can deliver.
func (s *siege) checkLatency(t *testing.T) {
	t.Helper()
	alone := os.Getenv("OUTBOX_TEST_HOSTILE") != ""
	at := func(all []time.Duration, percent int) time.Duration {
		return all[(len(all)-1)*percent/100].Round(time.Microsecond)
	}
	slices.Sort(s.before)
	slices.Sort(s.during)
	for _, p := range []struct {
		percent int
		slack   time.Duration
	}{{50, 3 * time.Second}, {99, 6 * time.Second}} {
		before, during := at(s.before, p.percent), at(s.during, p.percent)
		t.Logf("latency p%d: %v before (%d records), %v during (%d records)", p.percent, before, len(s.before), during, len(s.during))
		if alone && during > 10*before+p.slack {
			t.Errorf("p%d was %v before and is %v", p.percent, before, during)
		}
	}
}

// checkRecords checks the outcomes of all attacks, and the relay's memory.
func (s *siege) checkRecords(t *testing.T) {
	t.Helper()
	counts := func() (delivered, rejected int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.got[hostile.Delivered], s.got[hostile.Rejected]
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if d, r := counts(); d >= s.expected[hostile.Delivered] && r >= s.expected[hostile.Rejected] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("expected outcomes %v, actual outcomes %v", s.expected, s.got)
	for _, f := range []hostile.Fate{hostile.Delivered, hostile.Rejected} {
		if s.got[f] != s.expected[f] {
			t.Errorf("%d attacks were %s, want %d", s.got[f], f, s.expected[f])
		}
	}
	for _, d := range s.damage[:min(10, len(s.damage))] {
		t.Error(d)
	}
	t.Logf("%d starts, peak resident memory %d MB", s.starts, s.peak)
	if s.peak > rig.MaxResident+largeRows {
		t.Errorf("peak resident memory was %d MB, it may be %d MB", s.peak, rig.MaxResident+largeRows)
	}
}

// checkPosition checks that only the relay's processes have written to the position topic, and that its
// records are true.
func (s *siege) checkPosition(t *testing.T) {
	t.Helper()
	keys, snapshots := map[string]bool{}, map[string]bool{}
	for _, rec := range s.Kafka.ReadAll(t, position.DefaultTopic) {
		if slot, _, _ := strings.Cut(string(rec.Key), "/"); slot != s.Slot || rec.Value == nil {
			continue
		}
		keys[string(rec.Key)] = true
		var p checkpoint.Position
		if err := json.Unmarshal(rec.Value, &p); err != nil || len(rec.Headers) > 0 {
			t.Errorf("the position topic has a record that is none: %v: %.500s", err, rec.Value)
		}
		for _, snapshot := range p.Snapshots {
			snapshots[snapshot.Text] = true
		}
	}
	if len(keys) != 1 || len(snapshots) == 0 {
		t.Errorf("the position topic has %d keys and %d snapshots", len(keys), len(snapshots))
	}
	end, conn := s.Recorded(t).EndLSN.String(), s.Connect(t)
	if !rig.Ask[bool](t, conn, `SELECT confirmed_flush_lsn <= $2::pg_lsn AND $2::pg_lsn <= pg_current_wal_lsn() FROM pg_replication_slots WHERE slot_name = $1`, s.Slot, end) {
		t.Errorf("the position record says %s", end)
	}
	for text := range snapshots {
		if !checkpoint.ValidSnapshot(text) || !rig.Ask[bool](t, conn, `SELECT pg_snapshot_xmax($1::text::pg_snapshot) BETWEEN $2::text::xid8 AND pg_snapshot_xmax(pg_current_snapshot())`, text, s.xmax) {
			t.Errorf("a position record has the snapshot %.200s", text)
		}
	}
}
