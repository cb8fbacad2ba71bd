package lane

import (
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An entry is a record of the window, in memory of its own.
type entry struct {
	record  sink.Record
	next    *entry // in its lane
	buf     []byte // key, value and header values of record
	payload int    // size of keys, values and headers
	memory  int    // what it takes of the window
	sent    bool   // a request with it may have reached the broker
	checked bool   // Writer.check has accepted it
	removed bool   // to be unlinked by sweep
}

const (
	// entryOverhead is about the memory of an entry, and of a lane with one entry, without the record.
	entryOverhead = 384

	// headerOverhead is the memory of a header without key and value.
	headerOverhead = 40

	// bufStep is the unit of sizes of entry.buf, so that they fit many records.
	bufStep = 64
)

// memoryOf returns about how much of the window r takes.
func memoryOf(r *sink.Record, payload int) int {
	return entryOverhead + payload + headerOverhead*len(r.Headers)
}

// set copies r, with the given payload size, into e.
func (e *entry) set(r *sink.Record, payload int) {
	if cap(e.buf) < payload || cap(e.buf) > 4*payload+4<<10 {
		e.buf = make([]byte, 0, (payload+bufStep-1)/bufStep*bufStep)
	}
	e.buf = e.buf[:0]
	before := e.record.Headers
	headers := before[:0]
	e.record = *r
	e.record.Key, e.record.Value = e.copyBytes(r.Key), e.copyBytes(r.Value)
	for i := range r.Headers {
		name := r.Headers[i].Key // may be in the memory of the caller, like all of r
		if i < len(before) && before[i].Key == name {
			name = before[i].Key
		} else {
			name = strings.Clone(name)
		}
		headers = append(headers, sink.Header{Key: name, Value: e.copyBytes(r.Headers[i].Value)})
	}
	e.record.Headers = headers
	if e.record.Timestamp.IsZero() {
		e.record.Timestamp = time.Now()
	}
	e.payload = payload
	e.memory = entryOverhead + cap(e.buf) + headerOverhead*cap(headers)
	e.next, e.sent, e.checked, e.removed = nil, false, false, false
}

// copyBytes appends b to e.buf, which has the capacity, and returns the copy.
func (e *entry) copyBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	start := len(e.buf)
	e.buf = append(e.buf, b...)
	return e.buf[start:len(e.buf):len(e.buf)]
}

// An entryPool keeps free entries, whose memory is at most limit together with that of the window.
type entryPool struct {
	free   []*entry
	memory int // of free
	limit  int
}

// get returns an entry. used is the memory of the window.
func (p *entryPool) get(used int) *entry {
	n := len(p.free)
	if n == 0 {
		return new(entry)
	}
	e := p.free[n-1]
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	p.memory -= e.memory
	p.trim(used)
	return e
}

// put makes e free. used is the memory of the window, without e.
func (p *entryPool) put(e *entry, used int) {
	e.record.Topic, e.next = "", nil
	p.free = append(p.free, e)
	p.memory += e.memory
	p.trim(used)
}

func (p *entryPool) trim(used int) {
	for n := len(p.free); n > 0 && p.memory+used > p.limit; n-- {
		p.memory -= p.free[n-1].memory
		p.free[n-1] = nil
		p.free = p.free[:n-1]
	}
}
