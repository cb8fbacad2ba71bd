package runbook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestReplacingAPoller follows docs/replacing-a-poller.md from a poller to the relay and back, while writers never stop.
// Then each committed row is in Kafka once.
func TestReplacingAPoller(t *testing.T) {
	need.FullRun(t, "it runs a poller for seconds")
	t.Parallel()
	page := pollerPage(t)
	rig.Binary(t) // built before the writers start
	p := &pollerCase{db: pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), kafka: kafkatest.Fake(t).Cluster}
	p.kafka.CreateTopic(t, "orders", 3, nil)
	p.client = p.kafka.Client(t)
	p.db.Exec(t, page.table+"CREATE ROLE cdc LOGIN REPLICATION;")
	p.config = filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	relayDSN := strings.Replace(p.db.DSN, "//postgres@", "//cdc@", 1)
	yaml := strings.NewReplacer("postgres://cdc:change-me@db/app", relayDSN, "kafka-1:9092", p.kafka.Addrs[0]).Replace(page.config)
	rig.Must(t, os.WriteFile(p.config, []byte(yaml), 0o600))

	stopWriters := p.start(t, 3, p.write)
	stopPollers := p.start(t, 2, p.poll)
	p.published(t, 300)
	p.db.Exec(t, page.prepare)
	p.command(t, page.check)
	stopPollers()
	before := p.count(t, "TRUE")
	p.more(t, 50) // so that rows wait
	process := rig.Start(t, p.args(page.run)...)
	process.Logged(t, "initial copy finished")
	p.more(t, 300)
	wait.For(t, "records of the relay", func() bool { return len(p.kafka.ReadAll(t, "orders")) > before+300 })

	p.command(t, page.audit)
	process.Terminate(t)
	p.more(t, 50)                                                              // that the relay does not send
	p.db.Exec(t, `INSERT INTO events (topic, body) VALUES ('no topic', '{}')`) // nor can it be
	p.db.Exec(t, page.mark)
	p.more(t, 50)
	unsent := p.unsent(t, page.unsent)
	if len(unsent) < 50 {
		t.Errorf("the slot has %d rows", len(unsent))
	}
	p.db.Exec(t, strings.Replace(page.unmark, `\copy unsent FROM 'unsent'`, "INSERT INTO unsent VALUES ("+strings.Join(unsent, "), (")+");", 1))
	if p.count(t, "topic = 'no topic' AND published_at IS NULL") != 1 {
		t.Error("the row that cannot become a record stays marked")
	}
	p.db.Exec(t, `UPDATE events SET topic = 'orders' WHERE topic = 'no topic'`) // the poller cannot send it either
	stopPollers = p.start(t, 2, p.poll)
	p.command(t, page.drop)
	p.published(t, p.count(t, "TRUE"))
	stopWriters()
	wait.For(t, "all rows to be published", func() bool { return p.count(t, "published_at IS NULL") == 0 })
	stopPollers()
	p.verify(t)
}

// A pollerBlocks has the blocks of the page, in their order.
type pollerBlocks struct{ table, loop, prepare, config, check, run, audit, mark, unsent, unmark, drop string }

func pollerPage(t *testing.T) (p pollerBlocks) {
	t.Helper()
	into := []*string{&p.table, &p.loop, &p.prepare, &p.config, &p.check, &p.run, &p.audit, &p.mark, &p.unsent, &p.unmark, &p.drop}
	n := 0
	for _, s := range readPage(t, "../../docs/replacing-a-poller.md") {
		for _, b := range s.blocks {
			if n == len(into) {
				t.Fatalf("the test does not follow %q", b.text)
			}
			*into[n] = b.text
			n++
		}
	}
	if n != len(into) {
		t.Fatalf("the page has %d blocks", n)
	}
	return p
}

// A pollerCase is a database with the table of the page, and a topic.
type pollerCase struct {
	db     *pgtest.DB
	kafka  *kafkatest.Cluster
	client *kgo.Client // of the pollers
	config string
}

// start runs n instances of f with a connection each, until stop is called. stop waits for their ends.
func (p *pollerCase) start(t *testing.T, n int, f func(context.Context, *pgx.Conn) error) (stop func()) {
	t.Helper()
	stopped := make(chan struct{})
	var running sync.WaitGroup
	for range n {
		conn := p.db.Conn(t)
		running.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				if err := f(t.Context(), conn); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return func() {
		close(stopped)
		running.Wait()
	}
}

// write commits a transaction with three rows, and rolls another one back. Each is open for some milliseconds.
func (p *pollerCase) write(ctx context.Context, conn *pgx.Conn) error {
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		const insert = `INSERT INTO events (topic, body) SELECT 'orders', jsonb_build_object('n', n) FROM generate_series(1, 3) n`
		if _, err := conn.Exec(ctx, "BEGIN; "+insert+"; SELECT pg_sleep(0.01); "+end); err != nil {
			return err
		}
	}
	return nil
}

// poll is one round of the loop on the page.
func (p *pollerCase) poll(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	rows, _ := tx.Query(ctx, `SELECT id, topic, body FROM events WHERE published_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	type event struct {
		ID    int64
		Topic string
		Body  string
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil {
		return err
	}
	var ids []int64
	var records []*kgo.Record
	for _, e := range events {
		id := fmt.Append(nil, e.ID)
		ids = append(ids, e.ID)
		records = append(records, &kgo.Record{Topic: e.Topic, Key: id, Value: []byte(e.Body), Headers: []kgo.RecordHeader{{Key: "id", Value: id}}})
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE events SET published_at = now() WHERE id = ANY($1)`, ids); err != nil {
		return err
	}
	if len(ids) == 0 {
		_, err = tx.Exec(ctx, `SELECT pg_sleep(0.01)`)
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (p *pollerCase) count(t *testing.T, where string) int {
	t.Helper()
	return pgtest.QueryRow[int](t, p.db, "SELECT count(*)::int FROM events WHERE "+where)
}

// published waits until n rows are marked.
func (p *pollerCase) published(t *testing.T, n int) {
	t.Helper()
	wait.For(t, "marked rows", func() bool { return p.count(t, "published_at IS NOT NULL") >= n })
}

// more waits until n more rows are committed.
func (p *pollerCase) more(t *testing.T, n int) {
	t.Helper()
	enough := p.count(t, "TRUE") + n
	wait.For(t, "more rows", func() bool { return p.count(t, "TRUE") >= enough })
}

// args returns the arguments of a command line of the page.
func (p *pollerCase) args(line string) []string {
	line, _, _ = strings.Cut(strings.NewReplacer("-c outbox-cdc.yaml", "-c "+p.config, `"$OWNER_DSN"`, p.db.DSN).Replace(line), " | ")
	var args []string
	for i, part := range strings.Split(strings.TrimSpace(line), `"`) {
		if i%2 == 1 { // in quotes
			args = append(args, part)
		} else {
			args = append(args, strings.Fields(part)...)
		}
	}
	return args[1:]
}

func (p *pollerCase) command(t *testing.T, line string) (out string) {
	t.Helper()
	out, code := rig.Command(t, p.args(line)...)
	if code != 0 {
		t.Fatalf("%s: exit code %d\n%s", line, code, out)
	}
	return out
}

// unsent returns the ids that the command prints.
func (p *pollerCase) unsent(t *testing.T, line string) (ids []string) {
	t.Helper()
	for text := range strings.Lines(p.command(t, line)) {
		if !strings.HasPrefix(text, "{") { // of stderr
			continue
		}
		var row struct{ ID string }
		rig.Must(t, json.Unmarshal([]byte(text), &row))
		ids = append(ids, row.ID)
	}
	return ids
}

// verify compares the rows with the records.
func (p *pollerCase) verify(t *testing.T) {
	t.Helper()
	bodies := make(map[string][]byte)
	rows, err := p.db.Conn(t).Query(t.Context(), `SELECT id::text, body::text FROM events`)
	rig.Must(t, err)
	var id string
	var body []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &body}, func() error {
		bodies[id] = slices.Clone(body)
		return nil
	})
	rig.Must(t, err)
	times := make(map[string]int)
	byRelay := 0
	for _, rec := range p.kafka.ReadAll(t, "orders") {
		id := rig.Header(rec, "id")
		times[id]++
		if rig.Header(rec, "lsn") != "" {
			byRelay++
		}
		if want, ok := bodies[id]; !ok || !bytes.Equal(rec.Value, want) || string(rec.Key) != id {
			t.Errorf("record of id %s: key %s, value %s, the row has %s", id, rec.Key, rec.Value, want)
		}
	}
	for id := range bodies {
		if times[id] != 1 {
			t.Errorf("row %s is %d times in Kafka", id, times[id])
		}
	}
	t.Logf("%d rows, %d of them streamed by the relay", len(bodies), byRelay)
}
