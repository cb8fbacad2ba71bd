package twin

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// The maximum number of bytes in transit in one direction. To Kafka there is practically no limit,
// because sarama writes while it holds a mutex: see conn.swift.
const (
	pipeSize      = 64 << 10
	pipeSizeKafka = 1 << 30
)

// A pipe is one direction of a connection.
type pipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	rng     *rand.Rand

	segments []segment // in transit or ready to be read, in order
	size     int
	last     time.Time // arrival of the newest segment
	written  time.Time // when the newest byte read was written
	swift    bool      // no latency
	limit    int       // of size
	cutAfter int       // bytes until the connection is lost; 0: no limit
	cutting  func()

	ended             bool  // no more segments follow
	readErr, writeErr error // nil: none
	readBy, writeBy   time.Time
}

type segment struct {
	written, at time.Time // at: time of arrival
	bytes       []byte
}

func newPipe(rng *rand.Rand, limit int) *pipe {
	p := &pipe{rng: rng, limit: limit}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// await waits for a broadcast of c, but not beyond the earliest of the times that are not zero. The
// caller must hold the lock of c.
func await(c *sync.Cond, times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		timer := time.AfterFunc(time.Until(first), func() {
			c.L.Lock()
			defer c.L.Unlock()
			c.Broadcast()
		})
		defer timer.Stop()
	}
	c.Wait()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var arrives time.Time
		switch {
		case p.readErr != nil:
			return 0, p.readErr
		case passed(p.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(p.segments) > 0 && passed(p.segments[0].at):
			n := 0
			for n < len(b) && len(p.segments) > 0 && passed(p.segments[0].at) {
				s := &p.segments[0]
				k := copy(b[n:], s.bytes)
				n += k
				p.written = s.written
				if s.bytes = s.bytes[k:]; len(s.bytes) == 0 {
					p.segments = p.segments[1:]
				}
			}
			p.size -= n
			p.changed.Broadcast()
			return n, nil
		case len(p.segments) > 0:
			arrives = p.segments[0].at
		case p.ended:
			return 0, io.EOF
		}
		await(p.changed, arrives, p.readBy)
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for {
		switch {
		case p.writeErr != nil:
			return written, p.writeErr
		case len(b) == 0:
			return written, nil
		case passed(p.writeBy):
			return written, os.ErrDeadlineExceeded
		case p.size >= p.limit:
			await(p.changed, p.writeBy)
			continue
		}
		n := min(len(b), p.limit-p.size)
		cut := p.cutAfter > 0 && n >= p.cutAfter
		if cut {
			n = p.cutAfter
		} else if p.cutAfter > 0 {
			p.cutAfter -= n
		}
		at := p.arrival()
		p.segments = append(p.segments, segment{time.Now(), at, bytes.Clone(b[:n])})
		p.size += n
		written += n
		b = b[n:]
		p.changed.Broadcast()
		if cut {
			p.cutAfter = 0
			p.mu.Unlock()
			p.cutting()
			p.mu.Lock()
		}
	}
}

// arrival returns the time at which bytes that are written now arrive.
func (p *pipe) arrival() time.Time {
	if p.swift {
		return time.Now()
	}
	at := time.Now().Add(time.Duration(20+p.rng.IntN(200)) * time.Microsecond)
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	return at
}

// end makes the present segments the last ones. Later writes return err.
func (p *pipe) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.writeErr == nil {
		p.writeErr = err
	}
	p.changed.Broadcast()
}

// isOver reports whether no more segments follow.
func (p *pipe) isOver() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// breakOff discards the segments. Later reads and writes return errors.
func (p *pipe) breakOff(readErr, writeErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.segments, p.size = nil, 0
	if p.readErr == nil {
		p.readErr = readErr
	}
	if p.writeErr == nil {
		p.writeErr = writeErr
	}
	p.changed.Broadcast()
}

func (p *pipe) freeze(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(d); until.After(p.last) {
		p.last = until
	}
}

// breakAfter makes the pipe call cutting after the given number of bytes has been written.
func (p *pipe) breakAfter(bytes int, cutting func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter, p.cutting = bytes, cutting
}

func (p *pipe) setDeadline(field *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*field = t
	p.changed.Broadcast()
}
