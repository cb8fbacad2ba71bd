package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A parkRig is a relay with on_bad_record: park, and rows whose payload has their number within their key.
type parkRig struct {
	*deadLetterRig
	conn *pgx.Conn
	rows map[string]int
}

func newParkRig(t *testing.T, cluster *kafkatest.Cluster, more string) *parkRig {
	t.Helper()
	return newParkRigOn(t, rig.Database(t), cluster, more)
}

func newParkRigOn(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster, more string) *parkRig {
	t.Helper()
	r := &parkRig{deadLetterRig: &deadLetterRig{Rig: rig.NewOn(t, db, cluster)}, rows: make(map[string]int)}
	r.dead = cluster.Topic(t, 3, map[string]string{"max.message.bytes": "10000000"})
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic, "on_bad_record: park\ndead_letter_topic: "+r.dead+"\n"+more)
	r.conn = r.Connect(t)
	return r
}

// insert inserts n rows of a key. pad is the size of their payload.
func (r *parkRig) insert(t *testing.T, key string, n, pad int) {
	t.Helper()
	r.insertWith(t, key, n, pad, "{}")
}

// poison inserts a row that cannot become a record with the default configuration.
func (r *parkRig) poison(t *testing.T, key string) {
	t.Helper()
	r.insertWith(t, key, 1, 0, `{"id": "mine"}`)
}

// large inserts a row that is larger than the topic allows.
func (r *parkRig) large(t *testing.T, key string) {
	t.Helper()
	r.insert(t, key, 1, 2_000_000)
}

func (r *parkRig) insertWith(t *testing.T, key string, n, pad int, headers string) {
	t.Helper()
	for range n {
		r.rows[key]++
		_, err := r.conn.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES (gen_random_uuid(), 'order', $1, 'T', jsonb_build_object('n', $2::int, 'pad', repeat('x', $3)), $4::jsonb)`, key, r.rows[key], pad, headers)
		rig.Must(t, err)
	}
}

// allowLarge lets the topic accept large records.
func (r *parkRig) allowLarge(t *testing.T) {
	t.Helper()
	_, err := r.Kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new("10000000")}}, r.Topic)
	rig.Must(t, err)
}

// numbers returns the numbers of the records of a key in a topic, in order.
func (r *parkRig) numbers(t *testing.T, topic, key string) []int {
	t.Helper()
	var all []int
	for _, rec := range r.Kafka.ReadAll(t, topic) {
		if string(rec.Key) == key && strings.HasPrefix(string(rec.Value), "{") {
			all = append(all, numberIn(t, rec))
		}
	}
	return all
}

func numberIn(t *testing.T, rec *kgo.Record) int {
	t.Helper()
	var payload struct{ N int }
	rig.Must(t, json.Unmarshal(rec.Value, &payload))
	return payload.N
}

// firstAppearances returns the distinct numbers, in the order of their first appearance.
func firstAppearances(numbers []int) []int {
	var seen []int
	for _, n := range numbers {
		if !slices.Contains(seen, n) {
			seen = append(seen, n)
		}
	}
	return seen
}

func countTo(n int, without ...int) []int {
	var all []int
	for i := 1; i <= n; i++ {
		if !slices.Contains(without, i) {
			all = append(all, i)
		}
	}
	return all
}

// demandNumbers demands the first appearances of a key in a topic.
func (r *parkRig) demandNumbers(t *testing.T, topic, key string, want []int) {
	t.Helper()
	if got := firstAppearances(r.numbers(t, topic, key)); !slices.Equal(got, want) {
		t.Errorf("key %s in %s: %v, want %v", key, topic, got, want)
	}
}

func countFrom(first, last int) []int { return countTo(last)[first-1:] }

// A bad record parks its key: it and every later record of the key go to the dead-letter topic in order, also after a
// crash. Other keys flow. Release stops while the cause is not fixed. When it is fixed, it sends all of them in order,
// and rows that are committed meanwhile come behind them.
func TestParkAndRelease(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Broker(t)
	r := newParkRig(t, cluster, "")
	process := r.Run(t)
	for range 5 {
		r.insert(t, "a", 2, 10)
		r.insert(t, "b", 2, 10)
		r.insert(t, "c", 2, 10)
	}
	r.large(t, "a")
	r.poison(t, "c")
	for range 5 {
		r.insert(t, "a", 2, 10)
		r.insert(t, "b", 2, 10)
		r.insert(t, "c", 2, 10)
	}
	r.Confirmed(t)
	process.Kill(t)
	process = r.Run(t)
	r.insert(t, "a", 2, 10)
	r.insert(t, "b", 2, 10)
	r.insert(t, "c", 2, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", countTo(10))
	r.demandNumbers(t, r.Topic, "b", countTo(22))
	r.demandNumbers(t, r.Topic, "c", countTo(10))
	r.demandNumbers(t, r.dead, "a", countFrom(11, 23))
	r.demandNumbers(t, r.dead, "c", countFrom(11, 23))

	r.demandOutput(t, 0, "key c (1 bytes) of topic", "list")
	r.demandOutput(t, 0, "26 are of parked keys", "resend", "--all")
	r.demandOutput(t, 2, `key "b" is not parked`, "release", "--key", "b")
	r.demandOutput(t, 14, "MESSAGE_TOO_LARGE", "release", "--key", "a")
	advice := r.demandOutput(t, 14, "has a member with the name", "release", "--key", "c")
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", countTo(10))

	r.allowLarge(t)
	var stop atomic.Bool
	written := make(chan struct{})
	go func() {
		defer close(written)
		pace := time.NewTicker(20 * time.Millisecond)
		defer pace.Stop()
		for !stop.Load() {
			r.insert(t, "a", 1, 10)
			<-pace.C
		}
	}()
	r.demandOutput(t, 0, "the key is not parked any more", "release", "--key", "a")
	stop.Store(true)
	<-written
	r.insert(t, "a", 3, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", countTo(r.rows["a"]))

	r.demandOutput(t, 2, "confirm with outbox-cdc dead-letter discard ", "discard", "--key", "c")
	r.demandOutput(t, 2, "nothing was dropped", "discard", "--key", "c", "--row", "0/1:0")
	_, discard, _ := strings.Cut(advice, "drop the record: outbox-cdc dead-letter ")
	r.poison(t, "c")
	r.Confirmed(t)
	if out := r.demandOutput(t, 14, "12 records sent", strings.Fields(discard)...); !strings.Contains(out, "dropped the record of transaction ") {
		t.Errorf("discard does not say what it has dropped:\n%s", out)
	}
	const sent, discarded, parked = "; sent by a release; ", "; discarded, and a release ", "; its key is parked"
	if out := r.demandOutput(t, 0, parked, "list"); strings.Count(out, parked) != 1 || strings.Contains(out, sent) || strings.Contains(out, discarded) {
		t.Errorf("the second bad record alone is left:\n%s", out)
	}
	if out := r.demandOutput(t, 0, parked, "list", "--resent"); strings.Count(out, parked) != 1 || strings.Count(out, sent) != 12 || strings.Count(out, discarded) != 1 {
		t.Errorf("list --resent does not tell what the release has sent, left out and left:\n%s", out)
	}
	r.demandOutput(t, 0, "0 records sent", "discard", "--key", "c", "--yes")
	r.insert(t, "c", 3, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "c", countTo(27, 11, 24))
	process.Terminate(t)
	r.demandOutput(t, 0, "no dead letters; ", "list")
	if again := r.demandOutput(t, 14, "has a member with the name", "resend", "--all", "--again", "--dry-run"); strings.Contains(again, "an earlier record") {
		t.Errorf("a discarded record is in the way of later ones:\n%s", again)
	}
	unsent := 0
	for _, topic := range runAudit(t, r.Rig, 0, "--assume-confirmed").Topics {
		unsent += topic.Unsent
	}
	if unsent != 2 {
		t.Errorf("the audit finds %d dead letters that were not sent, 2 were discarded", unsent)
	}
}

// Relays are killed, and standbys take over, while keys are parked, released and discarded. At the end every row that
// can be delivered is, and the first appearances of each key are in order.
func TestParkSurvivesKills(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills relays")
	r := newParkRig(t, kafkatest.Broker(t), "")
	process := r.Run(t)
	keys := []string{"a", "b", "c", "d", "e", "f"}
	bad := make(map[string][]int)
	var stop atomic.Bool
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; !stop.Load(); i++ {
			key := keys[i%len(keys)]
			switch {
			case i%41 == 7:
				r.poison(t, key)
				bad[key] = append(bad[key], r.rows[key])
			case i%97 == 11:
				r.large(t, key)
				bad[key] = append(bad[key], r.rows[key]) // may be discarded
			default:
				r.insert(t, key, 1, 10)
			}
			<-time.After(2 * time.Millisecond)
		}
	}()
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		for i := 0; !stop.Load(); i++ {
			verb := []string{"release", "discard"}[i%2]
			args := []string{"dead-letter", verb, "-c", r.Config, "--key", keys[(i/2)%len(keys)], "--wait", "1s"}
			if verb == "discard" {
				args = append(args, "--yes")
			}
			rig.Command(t, args...)
		}
	}()
	for range rig.Cycles(t) {
		standby := rig.Start(t, "run", "-c", r.Config)
		<-time.After(time.Duration(300+rand.IntN(1500)) * time.Millisecond)
		process.Kill(t)
		process = standby
	}
	process.Logged(t, "streaming")
	stop.Store(true)
	<-written
	<-requests
	r.allowLarge(t)
	r.Confirmed(t)
	for range 40 {
		left := 0
		for _, key := range keys {
			out, code := rig.Command(t, "dead-letter", "discard", "-c", r.Config, "--key", key, "--yes", "--wait", "20s")
			if code == 2 && strings.Contains(out, "is not parked") {
				continue
			}
			left++
		}
		if left == 0 {
			break
		}
	}
	r.Confirmed(t)
	for _, key := range keys {
		got := firstAppearances(r.numbers(t, r.Topic, key))
		if !slices.IsSorted(got) {
			t.Errorf("key %s is out of order: %v", key, got)
		}
		for _, n := range countTo(r.rows[key]) {
			if !slices.Contains(got, n) && !slices.Contains(bad[key], n) {
				t.Errorf("row %d of key %s is missing; bad are %v", n, key, bad[key])
			}
		}
	}
	t.Logf("rows: %v, bad: %v", r.rows, bad)
	process.Terminate(t)
}

// The relay stops if one more key than max_parked_keys had to be parked, and does not start with another value of
// on_bad_record while keys are parked. A request without a running relay stays filed until it is withdrawn or handled.
func TestParkLimits(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestParkAndRelease runs always")
	r := newParkRig(t, kafkatest.Broker(t), "max_parked_keys: 1\n")
	process := r.Run(t)
	r.insert(t, "a", 1, 10)
	r.poison(t, "a")
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	r.poison(t, "b")
	process.Fails(t, 14, "max_parked_keys")
	rig.Start(t, "run", "-c", r.Config, "--set", "on_bad_record=dead-letter").Fails(t, 15, "on_bad_record: park")

	r.demandOutput(t, 1, "no relay has handled the request", "discard", "--key", "a", "--yes", "--wait", "1s")
	r.demandOutput(t, 1, "was filed at", "release", "--key", "a")
	r.demandOutput(t, 0, "withdrawn", "release", "--key", "a", "--withdraw")
	r.demandOutput(t, 1, "no relay has handled the request", "discard", "--key", "a", "--yes", "--wait", "1s")
	process = r.Run(t, "--set", "max_parked_keys=2")
	wait.For(t, "key a to be released", func() bool {
		return slices.Equal(firstAppearances(r.numbers(t, r.Topic, "a")), []int{1, 3})
	})
	process.Terminate(t)
}

// A record is discarded while its topic does not exist. The command reports that it has dropped this record, and that the others are not
// sent. The key is then parked behind the next one, and each command that is printed does what it says.
func TestDiscardWhileTheTopicIsMissing(t *testing.T) {
	t.Parallel()
	r := newParkRig(t, kafkatest.Broker(t), "")
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot, r.Topic+"_${route}", "on_bad_record: park\nmissing_topic_timeout: 1s\ndead_letter_topic: "+r.dead+"\n")
	process := r.Run(t)
	r.insert(t, "a", 3, 10)
	r.Confirmed(t)
	printed := func(out, before string) []string {
		t.Helper()
		_, command, ok := strings.Cut(out, before+"outbox-cdc dead-letter ")
		if !ok {
			t.Fatalf("no command is printed behind %q:\n%s", before, out)
		}
		command, _, _ = strings.Cut(command, "\n")
		return strings.Fields(command)
	}
	const drops = "to drop its first record: "
	discard := printed(r.demandOutput(t, 0, drops, "list"), drops)
	out := r.demandOutput(t, 1, "the key stays parked behind ", discard...)
	if !strings.Contains(out, "dropped the record of transaction ") || !strings.Contains(out, "topic does not exist") {
		t.Errorf("discard does not say what it has dropped, and why the others are not sent:\n%s", out)
	}
	again := r.demandOutput(t, 2, "no other one was dropped", discard...)
	list := r.demandOutput(t, 0, "topic does not exist", "list")
	if next := printed(list, drops); slices.Equal(next, discard) {
		t.Errorf("list names the discarded record:\n%s", list)
	}
	r.Kafka.CreateTopic(t, r.Topic+"_order", 1, nil)
	release := printed(out, "fix the cause, then ")
	if !slices.Equal(printed(again, "fix the cause, then "), release) {
		t.Errorf("the repeated discard has another advice:\n%s", again)
	}
	r.demandOutput(t, 0, "2 records sent", release...)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic+"_order", "a", []int{2, 3})
	if all := r.demandOutput(t, 0, "not listed: 3 released or discarded", "list"); strings.Contains(all, "resent,") {
		t.Errorf("list counts them as resent:\n%s", all)
	}
	if all := r.demandOutput(t, 0, "; discarded, its key is not parked any more", "list", "--resent"); strings.Count(all, "; discarded, ") != 1 {
		t.Errorf("1 was discarded:\n%s", all)
	}
	r.demandOutput(t, 0, "0 resent, 0 rejected, 3 were released or discarded (dead-letter list --resent", "resend", "--all")
	process.Terminate(t)
}

// Two relays share a dead-letter topic. The configuration of one does not know the keys that the other has parked: it says so, does not count
// their records as resent, and resends none.
func TestKeysParkedByAnotherRelay(t *testing.T) {
	t.Parallel()
	r := newParkRig(t, kafkatest.Broker(t), "")
	process := r.Run(t)
	r.poison(t, "a")
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	process.Terminate(t)
	list := r.demandOutput(t, 0, "its key is parked", "list")
	at, _, _ := strings.Cut(list, " ")
	r.Config = rig.WriteConfig(t, r.DB.DSN, r.Kafka.Addrs[0], r.Slot+"_other", r.Topic, "on_bad_record: park\ndead_letter_topic: "+r.dead+"\n")
	r.demandOutput(t, 0, "no dead letters; not listed: 2 parked under another slot (--resent lists them)", "list")
	r.demandOutput(t, 0, "; parked under that slot, and whether its key is still parked is known to the relay of that slot only", "list", "--resent")
	const left = "0 resent, 0 rejected, 2 are of keys that were parked under another slot (the configuration of its relay releases them; if it was this relay, --set source.slot to that)\n"
	for _, again := range [][]string{{}, {"--any-slot"}, {"--any-slot", "--again"}} {
		r.demandOutput(t, 0, left, append([]string{"resend", "--all"}, again...)...)
	}
	r.demandOutput(t, 14, "rejected: its key was parked under slot \""+r.Slot+"\"", "resend", at, "--any-slot", "--again")
	r.demandNumbers(t, r.Topic, "a", nil)
}
