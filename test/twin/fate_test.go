package twin

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fateKind is a kind of request fault.
type fateKind int

const (
	untouched fateKind = iota
	slow               // the broker responds slowly
	rejected           // the broker returns an error and does not store the records
	failed             // the broker stores the records and returns an error
	lost               // the broker stores the records and does not respond
	held               // the broker stores the records and responds much later
	late               // the connection is lost, and the broker stores the records later, or just after somebody has read the partition
	forgotten          // the broker has forgotten the producer
	denied             // the user is not authorized to write for some time
	throttled
	partly  // the broker stores a part of the records, and says so, or less than it has stored
	missing // the destination does not exist for some time
	fateKinds
)

// kafkaFates and queueFates are the kinds of a broker.
var (
	kafkaFates = []fateKind{slow, rejected, failed, lost, held, late, forgotten, denied, throttled}
	queueFates = []fateKind{slow, rejected, failed, lost, held, late, denied, throttled, partly, missing}
)

func (k fateKind) String() string {
	return [...]string{"untouched", "slow", "rejected", "failed after write", "answer lost", "answer held", "stored late", "producer forgotten", "denied", "throttled", "stored in part", "missing", ""}[k]
}

// A fate is the fault of one request, if it has any.
type fate struct {
	kind          fateKind
	before, after time.Duration // delays before and after the records are stored
	untilRead     bool          // before ends as soon as somebody has read the partition
	throttle      time.Duration
	err           error   // of rejected and failed
	part, told    float64 // of partly: the part of the records that is stored, and the part of it that the broker reports
}

func (f fate) String() string {
	s := f.kind.String()
	if f.err != nil {
		s += " " + f.err.Error()
	}
	if d := f.before + f.after + f.throttle; d > 0 {
		s += fmt.Sprintf(" for %s", d)
	}
	return s
}

// fates holds the probability of each fate. The zero value leaves all requests untouched.
type fates struct {
	weights     [fateKinds]int // per thousand
	deniedUntil time.Time
	deniedTopic string
}

// longestHold is the longest delay of a held response.
const longestHold = 20 * time.Second

// draw draws the fate of a request. The caller must hold cluster.mu.
func (f *fates) draw(k *cluster, c *conn, req kmsg.Request) fate {
	rng := c.rng
	kind, d := f.drawKind(rng)
	if req.Key() == int16(kmsg.ApiVersions) && kind != lost { // see conn.swift
		return fate{}
	}
	produce, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return otherFate(kind, min(d, 5*time.Second), rng, req)
	}
	topic := produce.Topics[0].Topic
	retriable := []error{
		kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.KafkaStorageError,
		kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException, kerr.ThrottlingQuotaExceeded,
	}
	written := []error{kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException}
	switch kind {
	case slow:
		return fate{kind: slow, before: d, after: d / 2}
	case rejected:
		return fate{kind: rejected, err: retriable[rng.IntN(len(retriable))]}
	case failed:
		return fate{kind: failed, err: written[rng.IntN(len(written))]}
	case held:
		return fate{kind: held, after: min(20*d, longestHold)}
	case late:
		return lateFate(d, rng)
	case forgotten:
		k.history.forget()
		lost := []error{kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber, nil}
		return fate{kind: forgotten, err: lost[rng.IntN(len(lost))]}
	case denied:
		f.deniedTopic, f.deniedUntil = topic, time.Now().Add(10*d)
		return fate{kind: denied}
	case throttled:
		return fate{kind: throttled, throttle: d}
	case untouched:
		if f.makeLate(c) {
			return lateFate(d, rng)
		}
	case lost, partly, missing, fateKinds:
	}
	return fate{kind: kind}
}

// drawKind draws the kind of a fate, and a duration.
func (f *fates) drawKind(rng *rand.Rand) (kind fateKind, d time.Duration) {
	n := rng.IntN(1000)
	for i, w := range f.weights {
		if n -= w; n < 0 {
			kind = fateKind(i)
			break
		}
	}
	return kind, time.Duration(rng.ExpFloat64() * float64(300*time.Millisecond))
}

// makeLate reports whether a request without another fate is late. That of a process that is gone often is.
func (f *fates) makeLate(c *conn) bool {
	return f.weights != [fateKinds]int{} && c.in.isOver() && c.rng.IntN(2) == 0
}

// lateFate returns the fate of a request that is stored after a while, or as soon as an owner who takes over has read the partition.
func lateFate(d time.Duration, rng *rand.Rand) fate {
	if rng.IntN(2) == 0 {
		return fate{kind: late, before: min(50*d, longestHold), untilRead: true}
	}
	return fate{kind: late, before: 5 * d}
}

// otherFate returns the fate of a request other than Produce.
func otherFate(kind fateKind, d time.Duration, rng *rand.Rand, req kmsg.Request) fate {
	if kind == slow || kind == held {
		return fate{kind: slow, before: d}
	}
	if kind == rejected {
		errs := []error{kerr.CoordinatorLoadInProgress}
		switch req.(type) {
		case *kmsg.ListOffsetsRequest:
			errs = []error{kerr.NotLeaderForPartition, kerr.OffsetNotAvailable, kerr.LeaderNotAvailable}
		case *kmsg.FetchRequest:
			errs = []error{kerr.NotLeaderForPartition, kerr.OffsetOutOfRange, kerr.UnknownServerError, kerr.KafkaStorageError}
		}
		return fate{kind: rejected, err: errs[rng.IntN(len(errs))]}
	}
	if kind == lost || kind == failed {
		return fate{kind: lost}
	}
	return fate{}
}

// instead returns the error that the broker returns for a partition instead of storing the batch, or nil.
// The caller must hold cluster.mu.
func (f fate) instead(k *cluster, topic string, partition int32) error {
	if topic == k.fates.deniedTopic && time.Now().Before(k.fates.deniedUntil) {
		return kerr.TopicAuthorizationFailed
	}
	if topic == k.unsafe {
		return kerr.NotEnoughReplicas
	}
	if f.kind == forgotten && int(partition) < len(k.topics[topic]) {
		clear(k.topics[topic][partition].states)
	}
	if f.kind == rejected || f.kind == forgotten {
		return f.err
	}
	return nil
}
