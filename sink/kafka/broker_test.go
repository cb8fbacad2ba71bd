package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// TestBrokerDies: kill -9 in mid-flow, and a stop for longer than a request is waited for.
// The log holds everything once and in order.
func TestBrokerDies(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Config{})
	topic := k.Topic(t, 4, nil)
	r := newRig(t, Config{Brokers: k.Addrs})
	sent := make([]int, 4)
	send := func(n int) {
		t.Helper()
		for range n {
			p := int32(r.seq % 4)
			r.send(recordFor(topic, p, fmt.Sprint(sent[p])))
			sent[p]++
		}
	}
	for _, trouble := range []struct {
		name        string
		begin, heal func() error
	}{
		{"killed", func() error { return k.Kill(t.Context()) }, func() error { return k.Restart(t.Context()) }},
		{"stopped", func() error { return k.Shutdown(t.Context()) }, func() error { return k.Restart(t.Context()) }},
		{"frozen", k.Pause, func() error { time.Sleep(readTimeout + 2*time.Second); return k.Resume() }},
		{"killed again", func() error { return k.Kill(t.Context()) }, func() error { return k.Restart(t.Context()) }},
	} {
		send(100_000)
		r.wait("room in the window for what is sent meanwhile", func() bool { return len(r.acked) > int(r.seq)-20_000 })
		if err := trouble.begin(); err != nil {
			t.Fatal(err)
		}
		send(20_000)
		if err := trouble.heal(); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		r.mu.Lock()
		n := len(r.acked)
		r.mu.Unlock()
		r.wait("the first acknowledgement", func() bool { return len(r.acked) > n })
		t.Logf("%s: first acknowledgement %s after the return", trouble.name, time.Since(back).Round(time.Millisecond))
	}
	send(1000)
	r.mustDrain()
	checkChaosLog(t, k.ReadAll(t, topic), sent, false)
	if s := r.client.Stat(); s.DuplicatesPossible != 0 {
		t.Errorf("%d renewals", s.DuplicatesPossible)
	}
}

// TestCompactedTopicWantsKeys: the broker names the record without one; what is before it is
// delivered, nothing behind it.
func TestCompactedTopicWantsKeys(t *testing.T) {
	k := kafkatest.Real(t)
	topic := k.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	r := newRig(t, Config{Brokers: k.Addrs})
	r.send(recordFor(topic, 0, "warm"))
	r.waitAcked(1)
	const n, bad = 1000, 600
	for i := range n {
		rec := recordFor(topic, 0, fmt.Sprint(i))
		if i == bad {
			rec.Key = nil
		}
		if _, err := r.trySend(rec); err != nil {
			break // found before we have sent everything
		}
	}
	r.producer.Flush()
	err := r.waitRun()
	e, ok := errors.AsType[*sink.RecordError](err)
	if !ok || e.Seq != bad+2 || !strings.Contains(err.Error(), "INVALID_RECORD") {
		t.Fatalf("Run: %v", err)
	}
	t.Log(err)
	got := values(k.ReadAll(t, topic), 0)
	if len(got) != bad+1 || got[bad] != fmt.Sprint(bad-1) {
		t.Errorf("%d records in the log, want %d", len(got), bad+1)
	}
}

// TestLimitIsExactOnABroker: and the broker agrees, byte by byte.
func TestLimitIsExactOnABroker(t *testing.T) {
	k := kafkatest.Broker(t)
	for _, limit := range []int{2000, 100_000, 3_000_000} {
		topic := k.Topic(t, 1, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
		testLimit(t, k, topic, limit)
	}
}

// TestLimitOverridden: what is configured counts, and the broker may see it otherwise.
func TestLimitOverridden(t *testing.T) {
	k := kafkatest.Broker(t)
	topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "5000"})
	r := newRig(t, Config{Brokers: k.Addrs, MaxMessageBytes: 10_000})
	r.send(recordFor(topic, 0, "before"))
	r.send(recordFor(topic, 0, strings.Repeat("x", 6000)))
	err := r.drain()
	if e, ok := errors.AsType[*sink.RecordError](err); !ok || e.Seq != 2 || !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("Run: %v", err)
	}
	if got := values(k.ReadAll(t, topic), 0); !slices.Equal(got, []string{"before"}) {
		t.Errorf("log holds %d records", len(got))
	}
}

// TestFullBatchesFitTheTopic: batches of incompressible records fill up to the limit and are
// not refused, with any compression.
func TestFullBatchesFitTheTopic(t *testing.T) {
	k := kafkatest.Broker(t)
	noise := benchNoise(1 << 20)
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := k.Topic(t, 1, map[string]string{"max.message.bytes": "65536"})
		r := newRig(t, Config{Brokers: k.Addrs, Compression: compression})
		r.send(recordFor(topic, 0, "warm")) // a new topic may have no leader yet
		r.waitAcked(1)
		before := r.client.Stat().Retries
		for i := range 2000 {
			r.send(recordFor(topic, 0, string(noise[i*500:i*500+500])))
		}
		r.mustDrain()
		if s := r.client.Stat(); s.Retries != before {
			t.Errorf("%s: %d batches were refused: %s", compression, s.Retries-before, s.LastError)
		}
	}
}

// TestCreateTopicsOnABroker lets the cluster choose what is not configured.
func TestCreateTopicsOnABroker(t *testing.T) {
	k := kafkatest.Broker(t)
	for _, spec := range []TopicSpec{{}, {Partitions: 3, ReplicationFactor: 1}} {
		topic := kafkatest.UniqueName(t)
		r := newRig(t, Config{Brokers: k.Addrs, CreateTopics: &spec})
		r.sendKeyed(topic, "key", "x")
		r.mustDrain()
		if got := len(k.ReadAll(t, topic)); got != 1 {
			t.Errorf("%d records", got)
		}
		if s := r.journal.String(); strings.Contains(s, "level=ERROR") {
			t.Errorf("log: %s", s)
		}
		k.DeleteTopics(t, topic)
	}
}

// TestListeners of a real broker: SASL and TLS, right and wrong.
func TestListeners(t *testing.T) {
	k := kafkatest.Start(t, kafkatest.Config{Users: map[string]string{"alice": password}, TLS: true})
	topic := k.Topic(t, 1, nil)
	_, others := issueCertificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	right, wrong := login("SCRAM-SHA-512", "alice", password), login("SCRAM-SHA-256", "alice", "wrong")
	for _, tc := range []struct {
		name string
		cfg  Config
		is   error
		says string
	}{
		{"PLAIN", Config{Brokers: []string{k.SASLAddr()}, SASL: login("PLAIN", "alice", password)}, nil, ""},
		{"SCRAM-SHA-256", Config{Brokers: []string{k.SASLAddr()}, SASL: login("SCRAM-SHA-256", "alice", password)}, nil, ""},
		{"SCRAM-SHA-512", Config{Brokers: []string{k.SASLAddr()}, SASL: right}, nil, ""},
		{"TLS and SCRAM", Config{Brokers: []string{k.TLSAddr()}, SASL: right, TLS: staticTLS(k.TLSConfig())}, nil, ""},
		{"wrong PLAIN password", Config{Brokers: []string{k.SASLAddr()}, SASL: login("PLAIN", "alice", "wrong")}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"wrong SCRAM password", Config{Brokers: []string{k.SASLAddr()}, SASL: wrong}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"unknown user", Config{Brokers: []string{k.SASLAddr()}, SASL: login("SCRAM-SHA-512", "bob", password)}, sink.ErrAccess, "SASL_AUTHENTICATION_FAILED"},
		{"no login", Config{Brokers: []string{k.SASLAddr()}}, sink.ErrUnreachable, "SASL login?"},
		{"login where none is expected", Config{Brokers: k.Addrs, SASL: right}, sink.ErrAccess, ""},
		{"unknown authority", Config{Brokers: []string{k.TLSAddr()}, SASL: right, TLS: staticTLS(&tls.Config{RootCAs: others})}, sink.ErrAccess, "trusted authority"},
		{"plaintext to TLS", Config{Brokers: []string{k.TLSAddr()}, SASL: right}, sink.ErrAccess, "expects TLS"},
		{"TLS to plaintext", Config{Brokers: k.Addrs, TLS: staticTLS(k.TLSConfig())}, sink.ErrUnreachable, "plaintext listener?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patience := 2 * time.Second
			if tc.is == nil {
				patience = testTimeout
			}
			err := roundTrip(t, tc.cfg, topic, patience)
			if !errors.Is(err, tc.is) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Open: %v, want %v and %q", err, tc.is, tc.says)
			}
			t.Log(err)
		})
	}
}
