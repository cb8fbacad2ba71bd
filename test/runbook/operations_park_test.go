package runbook

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

var parkRecipes = map[string]recipe{
	"Set it up":                            setUpParking,
	"Release a key":                        releaseKey,
	"Discard a record":                     long(discardRecord),
	"A truncated dead letter":              long(truncatedLetter),
	"After the loss of the position topic": long(parkedKeysLost),
}

// parked is the key that is parked.
const parked = "order-42"

// parkedID matches its id.
var parkedID = regexp.MustCompile(`dead-letter release .*--id (\w+)`)

func setUpParking(t *testing.T, o *operation, srv *pgserver.Server) {
	o.onBroker(t, srv)
	o.sh(t)
	o.more += o.nextBlock(t, "yaml").text
	o.configure(t)
	o.stream(t)
	bad := pgtest.QueryRow[string](t, o.db, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, headers)
		VALUES (gen_random_uuid(), $1, $2, 'T', '{"id": "forged"}') RETURNING id::text`, o.aggregate, parked)
	deadLetters := o.kafka.ReadN(t, 1, o.named("outbox.dead-letter"))
	if len(deadLetters) != 1 || rig.Header(deadLetters[0], "dead_letter_column_id") != bad {
		t.Errorf("dead letters: %v", deadLetters)
	}
	o.delivers(t)
}

// park runs a relay until it has parked a key behind a bad row, and returns the ids of the bad row and of the one after it.
// The relay is stopped, and the row is no longer bad.
func (o *operation) park(t *testing.T, srv *pgserver.Server) (bad, behind string) {
	t.Helper()
	const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, created_at) VALUES (gen_random_uuid(), $1, $2, 'T', $3) RETURNING id::text`
	o.on(t, srv)
	o.fake.CreateTopic(t, "outbox.dead-letter", 1, nil)
	o.more = "on_bad_record: park\noutbox: {columns: {timestamp: created_at}}\n"
	o.configure(t)
	r := o.stream(t)
	bad = pgtest.QueryRow[string](t, o.db, insert, o.aggregate, parked, "1960-01-01")
	behind = pgtest.QueryRow[string](t, o.db, insert, o.aggregate, parked, "2026-01-01")
	o.fake.ReadN(t, 2, "outbox.dead-letter")
	o.delivers(t)
	r.Terminate(t)
	if o.events.has(behind) {
		t.Error("a later record of the parked key was delivered")
	}
	o.more = "on_bad_record: park\n"
	o.configure(t)
	list := o.command(t, "outbox-cdc dead-letter list -c outbox-cdc.yaml")
	m, row := parkedID.FindStringSubmatch(list), discardsRow.FindStringSubmatch(list)
	if m == nil || row == nil {
		t.Fatalf("list does not name the parked key, or the row: %s", list)
	}
	o.names["5f0c7a7e"], o.names["0/16B3748:0"] = m[1], row[1]
	return bad, behind
}

func releaseKey(t *testing.T, o *operation, srv *pgserver.Server) {
	bad, behind := o.park(t, srv)
	if out, _ := o.sh(t); !strings.Contains(out, "dead-letter release -c ") {
		t.Errorf("list does not name the command:\n%s", out)
	}
	release, withdraw := o.nextBlock(t, "sh").text, o.nextBlock(t, "sh").text
	if code := o.run(t, strings.TrimSpace(release)+" --wait 1s").Exit(t); code != 1 { // no relay runs
		t.Errorf("exit code %d", code)
	}
	o.command(t, withdraw)
	o.stream(t)
	o.command(t, release)
	o.arrived(t, bad)
	o.arrived(t, behind)
}

func discardRecord(t *testing.T, o *operation, srv *pgserver.Server) {
	bad, behind := o.park(t, srv)
	o.stream(t)
	o.sh(t)
	o.arrived(t, behind)
	if o.events.has(bad) {
		t.Error("the discarded record was delivered")
	}
}

// truncated matches what list says of a parked key whose dead letter is truncated, with the ids of the row and of the key.
var truncated = regexp.MustCompile(`outbox-cdc replay -c .* --ids (\S+) --dsn .*outbox-cdc dead-letter discard -c .* --id (\w+) --row (\S+)`)

// discardsRow matches the row in the command of list that drops the first record of a parked key.
var discardsRow = regexp.MustCompile(`outbox-cdc dead-letter discard -c .* --row (\S+)`)

func truncatedLetter(t *testing.T, o *operation, srv *pgserver.Server) {
	const insert = `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), $1, $2, 'T', to_jsonb(repeat('x', $3))) RETURNING id::text`
	o.on(t, srv)
	o.fake.CreateTopic(t, "outbox.dead-letter", 1, nil)
	o.more = "on_bad_record: park\n"
	o.configure(t)
	r := o.stream(t)
	large := pgtest.QueryRow[string](t, o.db, insert, o.aggregate, parked, 2_000_000)
	behind := pgtest.QueryRow[string](t, o.db, insert, o.aggregate, parked, 1)
	o.fake.ReadN(t, 2, "outbox.dead-letter")
	o.delivers(t)
	r.Terminate(t)
	o.stream(t)
	m := truncated.FindStringSubmatch(o.command(t, "outbox-cdc dead-letter list -c outbox-cdc.yaml"))
	if m == nil || m[1] != large {
		t.Fatalf("list does not say how to send row %s: %q", large, m)
	}
	o.names["4f1c7a7e-3c2d-4a63-9f0b-6d2a51c1f0aa"], o.names["5f0c7a7e"], o.names["0/16B3748:0"] = m[1], m[2], m[3]
	_, err := o.kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new("10000000")}}, "outbox.event."+o.aggregate)
	rig.Must(t, err)
	o.sh(t)
	o.arrived(t, behind)
	var ids []string
	for _, rec := range o.kafka.ReadAll(t, "outbox.event."+o.aggregate) {
		if string(rec.Key) == parked {
			ids = append(ids, rig.Header(rec, "id"))
		}
	}
	if !slices.Equal(ids, []string{large, behind}) {
		t.Errorf("rows %v, want %s before %s", ids, large, behind)
	}
}

func parkedKeysLost(t *testing.T, o *operation, srv *pgserver.Server) {
	bad, behind := o.park(t, srv)
	_, err := o.kafka.Admin(t).DeleteTopic(t.Context(), position.DefaultTopic)
	rig.Must(t, err)
	o.fails(t, 15, "parked")
	o.sh(t)
	o.arrived(t, bad)
	o.arrived(t, behind)
	o.streams(t)
}
