package lane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A chaosTransport writes to a memoryBroker and fails at random.
type chaosTransport struct {
	*memoryBroker
	handled sync.WaitGroup

	mu    sync.Mutex
	rng   *rand.Rand
	calm  atomic.Bool
	lanes map[string]bool // with a request outstanding
	t     *testing.T
}

func (c *chaosTransport) Publish(_ context.Context, requests []*Request) {
	for _, r := range requests {
		c.handled.Go(func() { c.handle(r) })
	}
}

func (c *chaosTransport) Close() error {
	c.handled.Wait()
	return nil
}

// throw returns a random number below n.
func (c *chaosTransport) throw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// enter checks that a lane has one request outstanding.
func (c *chaosTransport) enter(r *Request) (leave func()) {
	key := r.Records[0].Topic
	if !c.options.PerDestination {
		if r.Records[0].Key == nil {
			return func() {}
		}
		key += " " + string(r.Records[0].Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes[key] {
		c.t.Errorf("lane %s has two requests", key)
	}
	c.lanes[key] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.lanes, key)
	}
}

func (c *chaosTransport) handle(r *Request) {
	leave := c.enter(r)
	done := func(stored int, err error) {
		leave()
		r.Done(stored, err)
	}
	bubble.Sleep(time.Duration(c.throw(300)) * time.Microsecond)
	if len(r.Records) > c.options.withDefaults().RequestRecords {
		c.t.Errorf("a request with %d records", len(r.Records))
	}
	if err := r.Fence(); err != nil {
		done(0, err)
		return
	}
	n := len(r.Records)
	kind := c.throw(30)
	if c.calm.Load() || kind > 7 {
		done(c.write(r.Records))
		return
	}
	part := c.throw(n + 1)
	stored, err := c.write(r.Records[:part])
	if err != nil {
		done(stored, err)
		return
	}
	bubble.Sleep(time.Duration(c.throw(300)) * time.Microsecond)
	switch kind {
	case 0, 1, 2:
		done(0, errBusy)
	case 3, 4:
		done(c.throw(part+1), errBusy)
	case 5:
		done(part, nil)
	case 6:
		done(0, errLost)
	default:
		done(c.throw(part+1), delayedError{time.Millisecond})
	}
}

// A delayedError is a Delayed.
type delayedError struct{ after time.Duration }

func (e delayedError) Error() string             { return "slow down" }
func (e delayedError) RetryAfter() time.Duration { return e.after }

// A chaosRun sends records with random keys, some of which are rejected, through a chaosTransport.
type chaosRun struct {
	*testing.T
	rng       *rand.Rand
	broker    *memoryBroker
	transport *chaosTransport
	session   *sinktest.Session
	writer    *Writer
	closed    atomic.Bool // the fence
	rejected  map[uint64]bool
	sent      []sink.Record
}

var errClosed = errors.New("the fence is closed")

func newChaosRun(t *testing.T, seed uint64, o Options) *chaosRun {
	t.Helper()
	o.Broker = "chaos:1"
	r := &chaosRun{T: t, rng: rand.New(rand.NewPCG(seed, 1)), broker: newMemoryBroker(o), rejected: make(map[uint64]bool)}
	r.transport = &chaosTransport{memoryBroker: r.broker, rng: rand.New(rand.NewPCG(seed, 2)), lanes: make(map[string]bool), t: t}
	for _, name := range []string{"a", "b", "dead"} {
		r.broker.create(name)
	}
	j := sinktest.NewJournal()
	on := &memorySink{Base: NewBase(o, j.Logger()), broker: r.broker}
	cfg := sink.WriterConfig{
		Fence: func() error {
			if r.closed.Load() {
				return errClosed
			}
			return nil
		},
		Substitute: toDead,
	}
	r.writer = on.NewWriterOver(r.transport, cfg)
	r.session = sinktest.StartWriter(t, on, r.writer, j)
	return r
}

// toDead sends a rejected record to the destination dead, without its value.
func toDead(r *sink.Record, _ *sink.RecordError) *sink.Record {
	r.Topic, r.Value = "dead", []byte("dead")
	return r
}

func (r *chaosRun) send(n, keys int) {
	r.Helper()
	for range n {
		seq := uint64(len(r.sent) + 1)
		rec := sink.Record{Seq: seq, Topic: []string{"a", "b"}[r.rng.IntN(2)], Headers: []sink.Header{{Key: "seq", Value: strconv.AppendUint(nil, seq, 10)}}}
		if r.rng.IntN(20) > 0 {
			rec.Key = fmt.Append(nil, "key ", r.rng.IntN(keys))
		}
		rec.Value = make([]byte, r.rng.IntN(300))
		if r.rng.IntN(50) == 0 {
			rec.Value = make([]byte, memoryLimit+1)
			r.rejected[seq] = true
		}
		if err := r.writer.Send(r.Context(), &rec); err != nil {
			r.Fatalf("Send: %v\n%s", err, r.session.Journal)
		}
		r.sent = append(r.sent, rec)
		if r.rng.IntN(50) == 0 {
			r.writer.Flush()
		}
		if r.rng.IntN(500) == 0 {
			r.closed.Store(true)
			bubble.Sleep(time.Millisecond)
			r.closed.Store(false)
			r.writer.Flush()
		}
	}
}

// check checks that every record is stored, in order by key, and only where it belongs.
func (r *chaosRun) check() {
	r.Helper()
	times := make(map[uint64]int)
	for _, name := range []string{"a", "b", "dead"} {
		last := make(map[string]uint64)
		for _, got := range r.broker.records(name) {
			seq, err := strconv.ParseUint(string(got.Headers[0].Value), 10, 64)
			if err != nil {
				r.Fatal(err)
			}
			if times[seq]++; times[seq] > 1 {
				continue
			}
			want := r.sent[seq-1]
			key := string(want.Key)
			if r.broker.options.PerDestination {
				key = "all"
			}
			ordered := name != "dead" && (want.Key != nil || r.broker.options.PerDestination)
			if ordered && seq < last[key] {
				r.Errorf("record %d is behind record %d in %s", seq, last[key], name)
			}
			last[key] = max(last[key], seq)
			if (name == "dead") != r.rejected[seq] || name != "dead" && (name != want.Topic || !slices.Equal(got.Value, want.Value) || string(got.Key) != string(want.Key)) {
				r.Errorf("record %d in %s is not what was sent", seq, name)
			}
		}
	}
	if len(times) != len(r.sent) {
		r.Errorf("%d of %d records are stored", len(times), len(r.sent))
	}
}

// Every record is stored in the order of its key, whatever happens to requests, and the Writer keeps nothing of it.
func TestChaos(t *testing.T) {
	seeds := uint64(3)
	if os.Getenv("OUTBOX_TEST_FULL") != "" {
		seeds = 100
	}
	for seed := range seeds {
		for _, o := range []Options{
			{},
			{RequestRecords: 7, RequestBytes: 1000},
			{RequestRecords: 20, PerDestination: true},
			{RequestRecords: 3, Outstanding: 10, WindowRecords: 100},
			{WindowBytes: 64 << 10},
		} {
			t.Run(fmt.Sprintf("%d/%+v", seed, o), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newChaosRun(t, seed, o)
					r.send(1500, 5+r.rng.IntN(500))
					r.transport.calm.Store(true)
					r.session.AwaitAcked(len(r.sent))
					r.session.Await("an empty writer", func() bool { return isEmpty(r.writer) })
					r.session.Drain(len(r.sent))
					r.check()
				})
			})
		}
	}
}

// isEmpty reports whether w keeps nothing of the records that have an outcome.
func isEmpty(w *Writer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.destinations {
		if d.lanes != nil || d.only != nil || d.prober != nil || d.records+d.memory+len(d.parked) > 0 {
			return false
		}
	}
	return w.table.lanes+len(w.table.buckets)-minBuckets+len(w.delayed.lanes)+len(w.failing)+w.memory+w.missingMemory+w.outstanding == 0
}
