package e2e

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A parkStep is a request to Kafka with which a relay that parks, releases or discards records makes a step.
type parkStep struct {
	verb  string // of the operator: release or discard; empty: while the key is parked
	is    func(r *parkRig, topic string, batch []byte) bool
	short bool // also in a short run
}

// parkSteps are the steps in their order.
func parkSteps() map[string]parkStep {
	to := func(topic func(r *parkRig) string, has ...string) func(*parkRig, string, []byte) bool {
		return func(r *parkRig, name string, batch []byte) bool {
			return name == topic(r) && !slices.ContainsFunc(has, func(text string) bool { return !bytes.Contains(batch, []byte(text)) })
		}
	}
	events := func(r *parkRig) string { return r.Topic }
	dead := func(r *parkRig) string { return r.dead }
	positions := func(*parkRig) string { return position.DefaultTopic }
	released := to(positions, `"parked_keys":{`, `"keys":[]`, `"outcome":"released"`)
	return map[string]parkStep{
		"the bad record":                  {is: to(events, "xxxxxxxx")},
		"its dead letter":                 {is: to(dead, "MESSAGE_TOO_LARGE")},
		"a dead letter that follows":      {is: to(dead, "the key is parked")},
		"the set with the key":            {is: to(positions, `"parked_keys":{`, `"lsn"`), short: true},
		"the position after it":           {is: afterStep(to(positions, `"parked_keys":{`, `"lsn"`), to(positions, `"end_lsn"`))},
		"release: the request":            {verb: "release", is: to(positions, `"parked_key_request"`)},
		"release: the records":            {verb: "release", is: to(events, "resent_from"), short: true},
		"release: the progress":           {verb: "release", is: to(positions, `"released":"`)},
		"release: the set without it":     {verb: "release", is: released},
		"release: the end of the request": {verb: "release", is: removal()},
		"discard: the request":            {verb: "discard", is: to(positions, `"parked_key_request"`)},
		"discard: the discarded row":      {verb: "discard", is: to(positions, `"discarded":[`), short: true},
		"discard: the records":            {verb: "discard", is: to(events, "resent_from")},
		"discard: the progress":           {verb: "discard", is: to(positions, `"discarded":[`, `"released":"`)},
		"discard: the set without it":     {verb: "discard", is: released},
		"discard: the end of the request": {verb: "discard", is: removal()},
	}
}

// afterStep is the first request that is next after one that is first.
func afterStep(first, next func(*parkRig, string, []byte) bool) func(*parkRig, string, []byte) bool {
	var seen bool
	return func(r *parkRig, topic string, batch []byte) bool {
		was := seen
		seen = seen || first(r, topic, batch)
		return was && next(r, topic, batch)
	}
}

// removal is the request that removes the request of the operator.
func removal() func(*parkRig, string, []byte) bool {
	filed := regexp.MustCompile(`"parked_key_request":\{"id":"([0-9a-f-]+)"`)
	var id []byte
	return func(_ *parkRig, topic string, batch []byte) bool {
		if m := filed.FindSubmatch(batch); m != nil && topic == position.DefaultTopic {
			id = m[1]
			return false
		}
		return id != nil && topic == position.DefaultTopic && bytes.Contains(batch, id) && !bytes.Contains(batch, []byte(`{"`))
	}
}

var errLost = errors.New("the request is lost")

// killAt kills the process when the broker receives the first request that is a step. The broker stores it only if
// stored is set; the relay does not get the response in either case. The result is closed then.
func killAt(r *parkRig, fake *kfake.Cluster, process *rig.Process, stored bool, is func(*parkRig, string, []byte) bool) (killed chan struct{}) {
	killed = make(chan struct{})
	var over atomic.Bool
	fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				if over.Load() || !is(r, topic.Topic, p.Records) {
					continue
				}
				over.Store(true)
				_ = process.Cmd.Process.Kill()
				<-process.Done
				close(killed)
				if !stored {
					return nil, errLost, true
				}
			}
		}
		return nil, nil, false
	})
	return killed
}

// A relay is killed at each step of parking, releasing and discarding, before Kafka stores the request of the step or
// after it. The next relay continues: no record is lost, the first appearances of each key are in order, and only a
// discarded row never arrives.
func TestParkIsKilledAtEachStep(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it kills a relay at each step of a release")
	for name := range parkSteps() {
		for _, stored := range []bool{false, true} {
			variant := map[bool]string{false: "lost", true: "stored"}[stored]
			t.Run(name+" "+variant, func(t *testing.T) {
				t.Parallel()
				step := parkSteps()[name] // some have a state
				if !step.short {
					need.FullRun(t, "each takes seconds")
				}
				killAtStep(t, step, stored)
			})
		}
	}
}

func killAtStep(t *testing.T, step parkStep, stored bool) {
	t.Helper()
	fake := kafkatest.Fake(t)
	r := newParkRig(t, fake.Cluster, "")
	process := r.Run(t)
	r.insert(t, "a", 3, 10)
	r.insert(t, "b", 3, 10)
	r.Confirmed(t)
	write := func() {
		r.large(t, "a")
		r.insert(t, "a", 2, 10)
		r.insert(t, "b", 2, 10)
		r.insert(t, "a", 2, 10)
	}
	want := countTo(9)
	done := make(chan struct{})
	switch step.verb {
	case "":
		killed := killAt(r, fake.Control, process, stored, step.is)
		write()
		await(t, killed)
		close(done)
	default:
		write()
		r.Confirmed(t)
		r.demandNumbers(t, r.dead, "a", countFrom(4, 8))
		args := []string{"dead-letter", step.verb, "-c", r.Config, "--key", "a", "--wait", "30s"}
		if step.verb == "discard" {
			args, want = append(args, "--yes"), countTo(9, 4)
		} else {
			r.allowLarge(t)
		}
		killed := killAt(r, fake.Control, process, stored, step.is)
		go func() {
			defer close(done)
			for out, code := rig.Command(t, args...); code == 1; out, code = rig.Command(t, args...) {
				t.Logf("%s: %s", step.verb, out) // the request was lost
			}
		}()
		await(t, killed)
	}
	process = r.Run(t)
	await(t, done)
	r.insert(t, "a", 1, 10)
	r.insert(t, "b", 1, 10)
	r.Confirmed(t)
	if step.verb == "" {
		r.demandNumbers(t, r.Topic, "a", countTo(3))
		r.demandNumbers(t, r.dead, "a", countFrom(4, 9))
		r.allowLarge(t)
		r.demandOutput(t, 0, "the key is not parked any more", "release", "--key", "a")
	}
	r.demandOutput(t, 2, "is not parked", "release", "--key", "a")
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", append(want, 10))
	r.demandNumbers(t, r.Topic, "b", countTo(6))
	process.Terminate(t)
}

func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	wait.Receive(t, "the step", c)
}
