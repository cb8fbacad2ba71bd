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
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// A lot is a relay with on_bad_record: park, and rows whose payload has their number within their key.
type lot struct {
	*mailbox
	conn *pgx.Conn
	rows map[string]int
}

func newLot(t *testing.T, cluster *kafkatest.Cluster, more string) *lot {
	t.Helper()
	l := &lot{mailbox: &mailbox{Rig: rig.NewOn(t, pgtest.Database(t), cluster)}, rows: make(map[string]int)}
	l.dead = cluster.Topic(t, 3, map[string]string{"max.message.bytes": "10000000"})
	l.Config = rig.WriteConfig(t, l.DB.DSN, l.Kafka.Addrs[0], l.Slot, l.Topic, "on_bad_record: park\ndead_letter_topic: "+l.dead+"\n"+more)
	l.conn = l.Connect(t)
	return l
}

// insert inserts n rows of a key. pad is the size of their payload.
func (l *lot) insert(t *testing.T, key string, n, pad int) {
	t.Helper()
	l.insertWith(t, key, n, pad, "{}")
}

// poison inserts a row that cannot become a record with the default configuration.
func (l *lot) poison(t *testing.T, key string) {
	t.Helper()
	l.insertWith(t, key, 1, 0, `{"id": "mine"}`)
}

// large inserts a row that is larger than the topic allows.
func (l *lot) large(t *testing.T, key string) {
	t.Helper()
	l.insert(t, key, 1, 2_000_000)
}

func (l *lot) insertWith(t *testing.T, key string, n, pad int, headers string) {
	t.Helper()
	for range n {
		l.rows[key]++
		_, err := l.conn.Exec(t.Context(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES (gen_random_uuid(), 'order', $1, 'T', jsonb_build_object('n', $2::int, 'pad', repeat('x', $3)), $4::jsonb)`, key, l.rows[key], pad, headers)
		rig.Must(t, err)
	}
}

// allowLarge lets the topic accept large records.
func (l *lot) allowLarge(t *testing.T) {
	t.Helper()
	_, err := l.Kafka.Admin(t).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: new("10000000")}}, l.Topic)
	rig.Must(t, err)
}

// numbers returns the numbers of the records of a key in a topic, in order.
func (l *lot) numbers(t *testing.T, topic, key string) []int {
	t.Helper()
	var all []int
	for _, rec := range l.Kafka.ReadAll(t, topic) {
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

// firsts returns the distinct numbers, in the order of their first appearance.
func firsts(numbers []int) []int {
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

// arrives demands the first appearances of a key in a topic.
func (l *lot) arrives(t *testing.T, topic, key string, want []int) {
	t.Helper()
	if got := firsts(l.numbers(t, topic, key)); !slices.Equal(got, want) {
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
	l := newLot(t, cluster, "")
	process := l.Run(t)
	for range 5 {
		l.insert(t, "a", 2, 10)
		l.insert(t, "b", 2, 10)
		l.insert(t, "c", 2, 10)
	}
	l.large(t, "a")
	l.poison(t, "c")
	for range 5 {
		l.insert(t, "a", 2, 10)
		l.insert(t, "b", 2, 10)
		l.insert(t, "c", 2, 10)
	}
	l.Confirmed(t, 30*time.Second)
	process.Kill(t)
	process = l.Run(t)
	l.insert(t, "a", 2, 10)
	l.insert(t, "b", 2, 10)
	l.insert(t, "c", 2, 10)
	l.Confirmed(t, 30*time.Second)
	l.arrives(t, l.Topic, "a", countTo(10))
	l.arrives(t, l.Topic, "b", countTo(22))
	l.arrives(t, l.Topic, "c", countTo(10))
	l.arrives(t, l.dead, "a", countFrom(11, 23))
	l.arrives(t, l.dead, "c", countFrom(11, 23))

	l.says(t, 0, "--key c", "list")
	l.says(t, 0, "26 are of parked keys", "resend", "--all")
	l.says(t, 2, `key "b" is not parked`, "release", "--key", "b")
	l.says(t, 14, "MESSAGE_TOO_LARGE", "release", "--key", "a")
	l.says(t, 14, "has a member with the name", "release", "--key", "c")
	l.insert(t, "a", 1, 10)
	l.Confirmed(t, 30*time.Second)
	l.arrives(t, l.Topic, "a", countTo(10))

	l.allowLarge(t)
	var stop atomic.Bool
	written := make(chan struct{})
	go func() {
		defer close(written)
		for !stop.Load() {
			l.insert(t, "a", 1, 10)
			time.Sleep(time.Millisecond)
		}
	}()
	l.says(t, 0, "the key is not parked any more", "release", "--key", "a")
	stop.Store(true)
	<-written
	l.insert(t, "a", 3, 10)
	l.Confirmed(t, 30*time.Second)
	l.arrives(t, l.Topic, "a", countTo(l.rows["a"]))

	l.says(t, 2, "confirm with --yes", "discard", "--key", "c")
	l.says(t, 0, "12 records sent", "discard", "--key", "c", "--yes")
	l.insert(t, "c", 3, 10)
	l.Confirmed(t, 30*time.Second)
	l.arrives(t, l.Topic, "c", countTo(26, 11))
	process.Terminate(t)
	l.says(t, 0, "no dead letters; ", "list")
}

// Relays are killed, and standbys take over, while keys are parked, released and discarded. At the end every row that
// can be delivered is, and the first appearances of each key are in order.
func TestParkSurvivesKills(t *testing.T) {
	t.Parallel()
	l := newLot(t, kafkatest.Broker(t), "")
	process := l.Run(t)
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
				l.poison(t, key)
				bad[key] = append(bad[key], l.rows[key])
			case i%97 == 11:
				l.large(t, key)
				bad[key] = append(bad[key], l.rows[key]) // may be discarded
			default:
				l.insert(t, key, 1, 10)
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		for i := 0; !stop.Load(); i++ {
			verb := []string{"release", "discard"}[i%2]
			args := []string{"dead-letter", verb, "-c", l.Config, "--key", keys[(i/2)%len(keys)], "--wait", "1s"}
			if verb == "discard" {
				args = append(args, "--yes")
			}
			rig.Command(t, args...)
		}
	}()
	for range rig.Cycles(t) {
		standby := rig.Start(t, "run", "-c", l.Config)
		time.Sleep(time.Duration(300+rand.IntN(1500)) * time.Millisecond)
		process.Kill(t)
		process = standby
	}
	process.Logged(t, "streaming")
	stop.Store(true)
	<-written
	<-requests
	l.allowLarge(t)
	l.Confirmed(t, 60*time.Second)
	for range 40 {
		left := 0
		for _, key := range keys {
			out, code := rig.Command(t, "dead-letter", "discard", "-c", l.Config, "--key", key, "--yes", "--wait", "20s")
			if code == 2 && strings.Contains(out, "is not parked") {
				continue
			}
			left++
		}
		if left == 0 {
			break
		}
	}
	l.Confirmed(t, 60*time.Second)
	for _, key := range keys {
		got := firsts(l.numbers(t, l.Topic, key))
		if !slices.IsSorted(got) {
			t.Errorf("key %s is out of order: %v", key, got)
		}
		for _, n := range countTo(l.rows[key]) {
			if !slices.Contains(got, n) && !slices.Contains(bad[key], n) {
				t.Errorf("row %d of key %s is missing; bad are %v", n, key, bad[key])
			}
		}
	}
	t.Logf("rows: %v, bad: %v", l.rows, bad)
	process.Terminate(t)
}

// The relay stops if one more key than max_parked_keys had to be parked, and does not start with another value of
// on_bad_record while keys are parked. A request without a running relay stays filed until it is withdrawn or handled.
func TestParkLimits(t *testing.T) {
	t.Parallel()
	l := newLot(t, kafkatest.Broker(t), "max_parked_keys: 1\n")
	process := l.Run(t)
	l.insert(t, "a", 1, 10)
	l.poison(t, "a")
	l.insert(t, "a", 1, 10)
	l.Confirmed(t, 30*time.Second)
	l.poison(t, "b")
	process.Fails(t, 14, "max_parked_keys")
	rig.Start(t, "run", "-c", l.Config, "--set", "on_bad_record=dead-letter").Fails(t, 15, "on_bad_record: park")

	l.says(t, 1, "no relay has handled the request", "discard", "--key", "a", "--yes", "--wait", "1s")
	l.says(t, 1, "was filed at", "release", "--key", "a")
	l.says(t, 0, "withdrawn", "release", "--key", "a", "--withdraw")
	l.says(t, 1, "no relay has handled the request", "discard", "--key", "a", "--yes", "--wait", "1s")
	process = l.Run(t, "--set", "max_parked_keys=2")
	rig.WaitFor(t, 30*time.Second, "key a to be released", func() bool {
		return slices.Equal(firsts(l.numbers(t, l.Topic, "a")), []int{1, 3})
	})
	process.Terminate(t)
}
