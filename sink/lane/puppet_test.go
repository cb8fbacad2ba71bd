package lane

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
)

// A puppet is a Transport whose responses a test gives.
type puppet struct {
	mu       sync.Mutex
	requests []*Request // that the test has not seen
	all      []*Request
	calls    int // of Publish
	closed   bool
	stopping func() bool // set by the first Publish
}

func (p *puppet) Publish(ctx context.Context, requests []*Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.requests = append(p.requests, requests...)
	p.all = append(p.all, requests...)
	if p.stopping == nil {
		p.stopping = context.AfterFunc(ctx, p.giveUp)
	}
}

// giveUp ends every request that the test has not.
func (p *puppet) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.all {
		r.Done(0, errLost)
	}
}

func (p *puppet) take() []*Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	requests := p.requests
	p.requests = nil
	return requests
}

func (p *puppet) Close() error {
	p.closed = true
	if p.stopping != nil {
		p.stopping()
	}
	return nil
}

// A stage is a Writer over a puppet, in a synctest bubble.
type stage struct {
	*testing.T
	*puppet
	*sinktest.Session
	writer *Writer
	base   *Base
	seq    uint64
}

// onStage runs f with a Writer in a synctest bubble, in which waiting takes no time.
func onStage(t *testing.T, o Options, cfg sink.WriterConfig, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Broker = "puppet:1"
		j, p := sinktest.NewJournal(), new(puppet)
		s := &stage{T: t, puppet: p, base: NewBase(o, j.Logger())}
		s.writer = s.base.NewWriterOver(p, cfg)
		s.Session = sinktest.StartWriter(t, &memorySink{Base: s.base}, s.writer, j)
		synctest.Wait() // Run would publish the first records without the others if it started between them
		f(s)
	})
}

// send sends a record for each word "destination/key/value", and flushes.
func (s *stage) send(words ...string) {
	s.Helper()
	for _, word := range words {
		part := strings.Split(word, "/")
		s.seq++
		r := sink.Record{Seq: s.seq, Topic: part[0], Key: []byte(part[1]), Value: []byte(part[2])}
		if part[1] == "" {
			r.Key = nil
		}
		if err := s.writer.Send(s.Context(), &r); err != nil {
			s.Fatalf("Send: %v", err)
		}
	}
	s.writer.Flush()
}

// outstanding returns the words of the records of the requests that were published since the last call, and the requests.
func (s *stage) published() (words string, requests []*Request) {
	s.Helper()
	synctest.Wait()
	requests = s.take()
	var all []string
	for _, r := range requests {
		var records []string
		for _, rec := range r.Records {
			records = append(records, rec.Topic+"/"+string(rec.Key)+"/"+string(rec.Value))
		}
		all = append(all, strings.Join(records, "+"))
	}
	return strings.Join(all, " "), requests
}

// want checks the requests that were published since the last call, and returns them.
func (s *stage) want(words string) []*Request {
	s.Helper()
	got, requests := s.published()
	if got != words {
		s.Fatalf("published are %q, want %q\n%s", got, words, s.Journal)
	}
	return requests
}

// ack acknowledges requests.
func ack(requests ...*Request) {
	for _, r := range requests {
		r.Done(len(r.Records), nil)
	}
}
