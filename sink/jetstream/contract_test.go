package jetstream

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/leak"
	"github.com/outbox-cdc/outbox-cdc/test/kit/natstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

const subjectLimit = 20_000

// A subject is a server for package sinktest. It injects faults into the connections of the client, or into the server.
type subject struct {
	*natstest.Server

	faults sinktest.ConnFaults
}

func newSubject(server *natstest.Server) *subject {
	return &subject{Server: server, faults: sinktest.ConnFaults{
		IsWrite:    func(b []byte) bool { return bytes.Contains(b, []byte("HPUB ")) },
		IsResponse: func(b []byte) bool { return bytes.Contains(b, []byte("MSG _INBOX.")) },
	}}
}

func (s *subject) Broker(window int) sink.Broker {
	return Config{Servers: s.Addrs, WindowRecords: window, Dial: s.faults.Dial, RequestTimeout: time.Second}
}

func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	return s.Stream(t, jetstream.StreamConfig{MaxMsgSize: subjectLimit})
}

func (s *subject) Store(t *testing.T) string {
	t.Helper()
	name := natstest.UniqueName(t)
	s.DeleteStream(t, "KV_"+name)
	return name
}

func (s *subject) Read(t *testing.T, stream string) []sink.StoredRecord {
	t.Helper()
	var all []sink.StoredRecord
	for _, m := range s.ReadAll(t, stream) {
		all = append(all, *decode(m))
	}
	return all
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, make([]byte, 2*subjectLimit)...)
}

func (s *subject) Hold() sinktest.Fault {
	return s.faults.Hold()
}

func (s *subject) Faults() []sinktest.Fault {
	lost := s.faults.Drop()
	lost.Slow = !need.Full() // the Writer waits for RequestTimeout
	return []sinktest.Fault{
		s.faults.Cut(),
		s.faults.Lose(),
		lost,
		s.full(),
		s.restart(),
	}
}

// full is a fault in which the account has no storage left.
func (s *subject) full() sinktest.Fault {
	seen := s.faults.Alter("the account has no storage left", func(b []byte) bool { return bytes.Contains(b, []byte(`"err_code":10002`)) })
	return sinktest.Fault{Name: seen.Name, Begin: func(t *testing.T) (<-chan struct{}, func()) {
		t.Helper()
		met, heal := seen.Begin(t)
		s.LimitStorage(t, 1)
		return met, func() {
			heal()
			s.LimitStorage(t, -1)
		}
	}}
}

// restart is a fault in which the server is down.
func (s *subject) restart() sinktest.Fault {
	refused := s.faults.Refused("the server restarts")
	return sinktest.Fault{Name: refused.Name, Begin: func(t *testing.T) (<-chan struct{}, func()) {
		t.Helper()
		met, heal := refused.Begin(t)
		s.Shutdown()
		return met, func() {
			heal()
			s.Restart(t)
		}
	}}
}

// TestContract runs the suite of package sinktest.
func TestContract(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, newSubject(natstest.Start(t)))
}
