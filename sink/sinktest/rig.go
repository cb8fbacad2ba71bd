package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// secret is in every key, value and header value.
	secret = "s3cr3t"

	// window is the window of tests that do not test the window.
	window = 5000
)

// newJournal returns a Journal that fails the test if it contains secret when the test ends.
func newJournal(t *testing.T) *Journal {
	t.Helper()
	j := NewJournal()
	t.Cleanup(func() {
		if strings.Contains(j.String(), secret) {
			t.Errorf("an error or log line shows a key, value or header:\n%s", j)
		}
	})
	return j
}

// journaled writes an error to j and returns it.
func journaled(j *Journal, err error) error {
	if err != nil {
		fmt.Fprintln(j, err)
	}
	return err
}

func open(t *testing.T, s Subject, window int, j *Journal) sink.Sink {
	t.Helper()
	opened, err := s.Broker(window).Open(Context(t), j.Logger())
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

// A rig is a Session and the records that it has sent.
type rig struct {
	*testing.T
	*Session
	subject Subject
	sent    []sink.Record // by Seq, from 1 on
}

func start(t *testing.T, s Subject, window int, cfg sink.WriterConfig) *rig {
	t.Helper()
	j := newJournal(t)
	return startOn(t, s, open(t, s, window, j), j, cfg)
}

// startOn is like start, with a Sink that is already open.
func startOn(t *testing.T, s Subject, on sink.Sink, j *Journal, cfg sink.WriterConfig) *rig {
	t.Helper()
	r := &rig{T: t, subject: s}
	t.Cleanup(func() { // runs after Run has returned
		_ = journaled(j, r.err)
		for _, err := range r.Failed() {
			_ = journaled(j, err)
		}
	})
	r.Session = StartSession(t, on, j, cfg)
	return r
}

// record returns the next record for a key.
func (r *rig) record(destination, key string) *sink.Record {
	n := len(r.sent) + 1
	return &sink.Record{
		Seq: uint64(n), Topic: destination, Partition: sink.AnyPartition,
		Key:     []byte(secret + " key " + key),
		Value:   fmt.Appendf(nil, "%s value %d %s", secret, n, strings.Repeat(".", n%300)),
		Headers: []sink.Header{{Key: "id", Value: fmt.Append(nil, secret, " id ", n)}, {Key: "empty", Value: []byte{}}},
		// brokers store timestamps in milliseconds
		Timestamp: time.Now().Truncate(time.Millisecond),
	}
}

// trySend sends rec and then overwrites its bytes, which the Writer must have copied.
func (r *rig) trySend(ctx context.Context, rec *sink.Record) error {
	kept := *rec
	kept.Key, kept.Value, kept.Headers = slices.Clone(rec.Key), slices.Clone(rec.Value), slices.Clone(rec.Headers)
	for i, h := range rec.Headers {
		kept.Headers[i].Value = slices.Clone(h.Value)
	}
	err := journaled(r.Journal, r.Writer.Send(ctx, rec))
	if err != nil {
		return err
	}
	r.sent = append(r.sent, kept)
	for _, b := range [][]byte{rec.Key, rec.Value, rec.Headers[0].Value} {
		clear(b)
	}
	return nil
}

// send sends n records, whose keys take turns among the given number of keys.
func (r *rig) send(destination string, n, keys int) {
	r.Helper()
	for range n {
		if err := r.trySend(Context(r.T), r.record(destination, fmt.Sprint(len(r.sent)%keys))); err != nil {
			r.Fatalf("Send: %v\n%s", err, r.Journal)
		}
	}
}

// awaitAll flushes and blocks until every record sent is acknowledged.
func (r *rig) awaitAll() {
	r.Helper()
	r.AwaitAcked(len(r.sent))
}

// drain calls CloseSend and waits for Run. Every record sent must then be acknowledged.
func (r *rig) drain() {
	r.Helper()
	r.Drain(len(r.sent))
}

// meet waits until the fault f has affected a write.
func (r *rig) meet(f Fault, met <-chan struct{}) {
	r.Helper()
	select {
	case <-met:
	case <-Context(r.T).Done():
		r.Fatalf("no write has met the fault %q: %+v\n%s", f.Name, r.Sink.Stat(), r.Journal)
	}
}
