package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// secret is in every key, value and header value.
	secret = "s3cr3t"

	// patience bounds what a test waits for.
	patience = 30 * time.Second

	// window is that of a test that is not about it.
	window = 5000
)

// A journal keeps what is logged and which errors were returned.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

// note keeps an error and returns it.
func (j *journal) note(err error) error {
	if err != nil {
		fmt.Fprintf(j, "%v\n", err)
	}
	return err
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newJournal returns a journal that fails the test if it shows any content.
func newJournal(t *testing.T) *journal {
	t.Helper()
	j := new(journal)
	t.Cleanup(func() {
		if strings.Contains(j.String(), secret) {
			t.Errorf("an error or log line shows a key, value or header:\n%s", j)
		}
	})
	return j
}

func open(t *testing.T, s Subject, window int, j *journal) sink.Sink {
	t.Helper()
	opened, err := s.Broker(window).Open(testContext(t), slog.New(slog.NewTextHandler(j, nil)))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return opened
}

// A rig is a Writer whose Run is on, what it was given, and what it has reported.
type rig struct {
	*testing.T
	subject Subject
	sink    sink.Sink
	writer  sink.Writer
	journal *journal
	cancel  context.CancelCauseFunc
	ran     chan error

	sent []sink.Record // by Seq, from 1 on

	mu      sync.Mutex
	acked   map[uint64]bool
	failed  map[uint64]error
	over    bool // Run has returned
	changed chan struct{}
}

func start(t *testing.T, s Subject, window int, cfg sink.WriterConfig) *rig {
	t.Helper()
	j := newJournal(t)
	return startOn(t, s, open(t, s, window, j), j, cfg)
}

// startOn is start with a Sink that is there.
func startOn(t *testing.T, s Subject, on sink.Sink, j *journal, cfg sink.WriterConfig) *rig {
	t.Helper()
	r := &rig{
		T: t, subject: s, sink: on, writer: on.NewWriter(cfg), journal: j, ran: make(chan error, 1),
		acked: make(map[uint64]bool), failed: make(map[uint64]error), changed: make(chan struct{}, 1),
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := r.writer.Run(ctx, r.done)
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
		r.ran <- j.note(err)
	}()
	t.Cleanup(func() {
		cancel(errors.New("the test is over"))
		<-ended
	})
	return r
}

// done is the Writer's.
func (r *rig) done(seqs []uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		r.Error("done was called after Run had returned")
	}
	for _, seq := range seqs {
		if r.acked[seq] || r.failed[seq] != nil {
			r.Errorf("record %d has two outcomes, the second is %v", seq, err)
		}
		if err == nil {
			r.acked[seq] = true
		} else {
			r.failed[seq] = r.journal.note(err)
		}
	}
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// record returns the next record for a key.
func (r *rig) record(destination, key string) *sink.Record {
	n := len(r.sent) + 1
	return &sink.Record{
		Seq: uint64(n), Topic: destination, Partition: sink.AnyPartition,
		Key:     []byte(secret + " key " + key),
		Value:   fmt.Appendf(nil, "%s value %d %s", secret, n, strings.Repeat(".", n%300)),
		Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, secret, " id ", n)}, {Key: "empty", Value: []byte{}}},
		// what a broker keeps of a time
		Timestamp: time.Now().Truncate(time.Millisecond),
	}
}

// trySend sends rec, and then uses its memory for something else.
func (r *rig) trySend(ctx context.Context, rec *sink.Record) error {
	kept := *rec
	kept.Key, kept.Value, kept.Headers = slices.Clone(rec.Key), slices.Clone(rec.Value), slices.Clone(rec.Headers)
	for i, h := range rec.Headers {
		kept.Headers[i].Value = slices.Clone(h.Value)
	}
	err := r.journal.note(r.writer.Send(ctx, rec))
	if err != nil {
		return err
	}
	r.sent = append(r.sent, kept)
	for _, b := range [][]byte{rec.Key, rec.Value, rec.Headers[0].Value} {
		clear(b)
	}
	return nil
}

// send sends n records, of so many keys in turn.
func (r *rig) send(destination string, n, keys int) {
	r.Helper()
	for range n {
		if err := r.trySend(testContext(r.T), r.record(destination, fmt.Sprint(len(r.sent)%keys))); err != nil {
			r.Fatalf("Send: %v\n%s", err, r.journal)
		}
	}
}

// await blocks until cond holds for the outcomes.
func (r *rig) await(what string, cond func() bool) {
	r.Helper()
	ctx := testContext(r.T)
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case err := <-r.ran:
			r.Fatalf("waiting for %s: Run has returned: %v\n%s", what, err, r.journal)
		case <-ctx.Done():
			r.Fatalf("waiting for %s: %+v\n%s", what, r.sink.Stat(), r.journal)
		}
	}
}

// awaitAcked flushes and blocks until everything sent is acknowledged.
func (r *rig) awaitAcked() {
	r.Helper()
	r.writer.Flush()
	r.await("acknowledgements", func() bool { return len(r.acked) == len(r.sent) })
}

// end returns what Run returns.
func (r *rig) end() error {
	r.Helper()
	select {
	case err := <-r.ran:
		return err
	case <-testContext(r.T).Done():
		r.Fatalf("Run does not return: %+v\n%s", r.sink.Stat(), r.journal)
		return nil
	}
}

// drain ends the sending. Every record must have been acknowledged.
func (r *rig) drain() {
	r.Helper()
	r.writer.CloseSend()
	if err := r.end(); err != nil {
		r.Fatalf("Run: %v\n%s", err, r.journal)
	}
	if len(r.acked) != len(r.sent) || len(r.failed) > 0 {
		r.Fatalf("%d of %d records are acknowledged, failed are %v", len(r.acked), len(r.sent), r.failed)
	}
	if st := r.sink.Stat(); st.InFlightRecords != 0 || st.InFlightBytes != 0 {
		r.Errorf("in flight at the end: %d records, %d bytes", st.InFlightRecords, st.InFlightBytes)
	}
}

// meet waits until a fault has been met.
func (r *rig) meet(f Fault, met <-chan struct{}) {
	r.Helper()
	select {
	case <-met:
	case <-testContext(r.T).Done():
		r.Fatalf("no write has met the fault %q: %+v\n%s", f.Name, r.sink.Stat(), r.journal)
	}
}
