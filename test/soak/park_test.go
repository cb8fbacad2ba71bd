package soak

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// The events of some aggregates are sometimes too large for the topic, unless an operator raises its limit.
const (
	deadLetterTopic = "soak-dead-letters"
	parkPayload     = 4 << 10 // so that the largest ordinary payload is below parkLimit
	parkLimit       = "200000"
	parkRaised      = "4000000"
	poisonSize      = 300_000
	poisonEach      = 15                     // one event in so many
	poisonEvery     = soakAggregates / 8     // one aggregate in so many
	releaseAllIn    = 2 * time.Minute        // at the end
	operatorPause   = 100 * time.Millisecond // mean
)

// A relay that parks keys keeps its guarantees while an operator releases and discards parked records during all
// other faults: nothing is lost but what was discarded, and the events of each key are in order.
// OUTBOX_TEST_PARKS is the number of strikes.
func TestSoakPark(t *testing.T) {
	need.FullRun(t, "faults drawn at random")
	s := newSoak(t, soakConfig{park: true, sender: 3 * SenderTimeout}) // longer, for a busy machine
	s.run(t, rig.EnvInt(t, "OUTBOX_TEST_PARKS", 8), DefaultWeights())
	s.report(t)
	s.parked.explain(t, s.found())
	s.complain(t)
}

// parkedRows has the events that a relay may park, and what an operator has done with them.
type parkedRows struct {
	deadLetters *Checker             // of the dead-letter topic: the events there are in order
	requests    *kafkatest.Collector // reads the position topic, which has the discarded rows

	mu        sync.Mutex
	poisoned  map[string]rowKey // by the id of the event
	may       map[rowKey]bool   // events that may be missing
	discarded map[rowKey]bool
	parked    []string // keys, as the relay has stored them last
	released  int
	strange   []string       // discarded rows that the topic does not reject
	history   []string       // how the stored sets have changed
	commands  map[string]int // by verb and exit code
	complete  bool           // every key was released
}

func newParkedRows(j *Journal) *parkedRows {
	return &parkedRows{
		deadLetters: NewChecker(soakRun, j, delivery.Config{AnyPartition: true, Missing: func(string, int64) bool { return true }}),
		poisoned:    make(map[string]rowKey), may: make(map[rowKey]bool), discarded: make(map[rowKey]bool), commands: make(map[string]int),
	}
}

// delivery configures the checker of the topic. Until the end each event that the topic may reject may be missing,
// and then only what was discarded.
func (p *parkedRows) delivery() delivery.Config {
	if p == nil {
		return delivery.Config{}
	}
	return delivery.Config{Missing: func(aggregate string, seq int64) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.may[rowKey{aggregate, seq}]
	}}
}

// poison is [Writers.Poison].
func (p *parkedRows) poison(e Event, rng *rand.Rand) int {
	if !mayBePoisoned(e.Aggregate) || rng.IntN(poisonEach) > 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := rowKey{e.Aggregate, e.Seq}
	p.poisoned[e.ID().String()], p.may[key] = key, true
	return poisonSize
}

func mayBePoisoned(aggregate string) bool {
	for i := 0; i < soakAggregates; i += poisonEvery {
		if aggregate == aggregateName(i) {
			return true
		}
	}
	return false
}

// take removes the headers of a dead letter or of a released record. It reports whether it is a dead letter.
func (p *parkedRows) take(r *Record) (deadLetter bool) {
	for i, h := range r.Headers {
		if strings.HasPrefix(h.Key, "dead_letter_") {
			r.Headers = r.Headers[:i]
			break
		}
	}
	if n := len(r.Headers); n > 1 && r.Headers[n-1].Key == "resent_from" {
		r.Headers, r.Released = r.Headers[:n-2], true
		p.mu.Lock()
		defer p.mu.Unlock()
		p.released++
	}
	return r.Topic == deadLetterTopic
}

// takePosition finds the discarded rows in a record of the position topic.
func (p *parkedRows) takePosition(rec *kgo.Record) {
	_, key, _ := strings.Cut(string(rec.Key), "/")
	v, err := parking.Parse(key, rec.Value)
	if err != nil || v.Record == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked = p.parked[:0]
	for _, parked := range v.Record.Parkings {
		p.parked = append(p.parked, parked.Key.Key)
		p.note(fmt.Sprintf("%s parked as %s from %s, bad %s, released %v, discarded %v", parked.Key.Key, parked.ShortID(),
			parked.First, parked.Bad, parked.Released, parked.Discarded))
		for _, d := range parked.Discarded {
			if key, ok := p.poisoned[d.ID]; ok {
				p.discarded[key] = true
			} else if d.ID != "" {
				p.strange = append(p.strange, d.ID+" of "+parked.Key.Key)
			}
		}
	}
}

// note adds a line to the history, unless it has it. p.mu is held.
func (p *parkedRows) note(line string) {
	if !slices.Contains(p.history, line) {
		p.history = append(p.history, line)
	}
}

// explain logs the history of the aggregates that violations are about.
func (p *parkedRows) explain(t *testing.T, found []Violation) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range found[:min(10, len(found))] {
		t.Logf("%s/%d was too large: %t, discarded: %t", v.Aggregate, v.Seq, slices.Contains(slices.Collect(maps.Values(p.poisoned)), rowKey{v.Aggregate, v.Seq}), p.discarded[rowKey{v.Aggregate, v.Seq}])
		for _, line := range p.history {
			if strings.Contains(line, v.Aggregate) {
				t.Log(line)
			}
		}
	}
}

// key returns one of the parked keys, or any that may be.
func (p *parkedRows) key(rng *rand.Rand) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.parked) == 0 {
		return aggregateName(rng.IntN(soakAggregates/poisonEvery) * poisonEvery)
	}
	return p.parked[rng.IntN(len(p.parked))]
}

// dropped returns how many rows were discarded.
func (p *parkedRows) dropped() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.discarded)
}

func (p *parkedRows) report(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.strange) > 0 {
		t.Errorf("discarded, but not too large: %v", p.strange)
	}
	deadLetters := p.deadLetters.Progress()
	t.Logf("%d rows were too large, %d dead letters of %d rows, %d records released, %d rows discarded, commands by exit code: %v",
		len(p.poisoned), deadLetters.Records, deadLetters.Rows, p.released, len(p.discarded), p.commands)
}

// operate releases and discards parked records until ctx is done. Sometimes it fixes the cause before a release: it
// raises the limit of the topic for a while.
func (s *soak) operate(ctx context.Context, admin *kadm.Client) {
	rng := rand.New(rand.NewPCG(s.seed, 2))
	for {
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(2 * operatorPause)))):
		case <-ctx.Done():
			return
		}
		key := s.parked.key(rng)
		switch rng.IntN(4) {
		case 0:
			s.operator(ctx, "release", key, "3s")
		case 1:
			_ = s.limitTopic(ctx, admin, parkRaised) // the broker may be away
			s.operator(ctx, "release", key, "3s")
			_ = s.limitTopic(ctx, admin, parkLimit)
		default:
			s.operator(ctx, "discard", key, "3s", "--yes")
		}
	}
}

// operator runs dead-letter release or discard, and returns its output and exit code.
func (s *soak) operator(ctx context.Context, verb, key, wait string, more ...string) (string, int) {
	args := append([]string{"dead-letter", verb, "-c", s.relays[0].config, "--key", key, "--wait", wait}, more...)
	cmd := exec.CommandContext(ctx, s.binary, args...)
	out, _ := cmd.CombinedOutput()
	if ctx.Err() == nil {
		s.parked.mu.Lock()
		defer s.parked.mu.Unlock()
		s.parked.commands[verb+" "+cmd.ProcessState.String()]++
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// limitTopic sets the size of the largest batch that the topic accepts.
func (s *soak) limitTopic(ctx context.Context, admin *kadm.Client, limit string) error {
	ctx, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	_, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: &limit}}, s.topics[0])
	return err
}

// releaseAll fixes the cause and releases every key. It waits until every row is confirmed: a key that is parked then is in
// the position topic, where the command looks for it.
func (s *soak) releaseAll(t *testing.T) {
	t.Helper()
	if len(s.found()) > 0 || s.anyEnded() {
		return
	}
	admin := s.kafka.Admin(t)
	rig.Must(t, s.limitTopic(t.Context(), admin, parkRaised))
	rig.AwaitConfirmedOr(t, s.db.Conn(t), soakSlot, s.anyEnded)
	for i := 0; i < soakAggregates; i += poisonEvery {
		for end := time.Now().Add(releaseAllIn); ; {
			out, code := s.operator(t.Context(), "release", aggregateName(i), "20s")
			if code == 2 && strings.Contains(out, "is not parked") {
				break
			}
			if time.Now().After(end) || s.anyEnded() {
				t.Errorf("%s is still parked: exit code %d\n%s", aggregateName(i), code, out)
				return
			}
		}
	}
	rig.Must(t, s.parked.requests.CatchUp(t.Context()))
	s.parked.complete = true
}

// finishParked has the oracle demand each row that was not discarded, if every key was released.
func (s *soak) finishParked(t *testing.T) {
	t.Helper()
	if s.parked == nil {
		return
	}
	rig.Must(t, s.parked.requests.CatchUp(t.Context()))
	s.parked.deadLetters.Finish()
	s.parked.mu.Lock()
	defer s.parked.mu.Unlock()
	if s.parked.complete {
		s.parked.may = s.parked.discarded
	}
}

// parkMutations are bugs of a relay that parks keys.
func parkMutations() map[string]mutation {
	breaks := map[Attack]int{RelayKill: 1}
	return map[string]mutation{
		"none, with parked keys": {park: true, breaks: breaks},
		"forgets the parked keys at a restart": {
			park: true, breaks: breaks, fake: forgetful,
			want: []delivery.Kind{delivery.Gap, delivery.OutOfOrder, delivery.Lost, delivery.Torn},
		},
		"releases a record before those that were parked earlier": {
			park: true, breaks: breaks, fake: misplacing,
			want: []delivery.Kind{delivery.Gap, delivery.OutOfOrder},
		},
	}
}

// forgetful stores the parked keys as those of another topic, so that the next relay has none of them.
func forgetful(fake *kafkatest.FakeCluster) {
	onProduce(fake, func(req *kmsg.ProduceRequest) (kmsg.Response, bool) {
		rewrite(positionsOf(req), func(b []byte) {
			const topic = `"topic":"`
			for i := bytes.Index(b, []byte(topic)); i >= 0 && bytes.Contains(b, []byte(`"parked_keys"`)); {
				i += len(topic)
				b[i]++
				next := bytes.Index(b[i:], []byte(topic))
				if next < 0 {
					return
				}
				i += next
			}
		})
		return nil, false
	})
}

// misplacing gives one in two dead letters that follow a bad one a later place than those behind it.
func misplacing(fake *kafkatest.FakeCluster) {
	onProduce(fake, func(req *kmsg.ProduceRequest) (kmsg.Response, bool) {
		rewrite(req, func(b []byte) {
			const follows, place = "the key is parked: it waits", "dead_letter_parked"
			for {
				i := bytes.Index(b, []byte(follows))
				if i < 0 {
					return
				}
				b = b[i:]
				if i = bytes.Index(b, []byte(place)); i < 0 {
					return
				}
				b = b[i+len(place):]
				if size := int(b[0]) / 2; rand.IntN(2) == 0 { // a varint: the length of the header's value
					b[size] = '9'
				}
			}
		})
		return nil, false
	})
}
