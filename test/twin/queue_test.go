package twin

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

const queueAddr = "queue:1"

// A queue simulates a broker that acknowledges each record on its own. It handles the requests of a connection in any order,
// recognizes no record that it has stored, and shuts out no earlier owner but from its position store.
type queue struct {
	net     *network
	history *history
	options lane.Options

	mu           sync.Mutex
	rng          *rand.Rand
	conns        map[*conn]struct{}
	destinations map[string][]sink.StoredRecord
	values       []sink.StoredValue // of the position store, in the order of their writes
	owner        int                // of the position store; those with higher numbers come later
	written      int                // number of the last write of the owner
	fates        fates
	deniedCode   string // of the error of fates.deniedTopic
	cured        int    // see broker
	unsafe       string // see broker
	ids          int    // number of Writers and owners
}

// The operations of a queue.
const (
	opLogin = "login" // the first one of a connection
	opStore = "store" // stores records
	opRead  = "read"  // returns up to Count records of a destination from Offset on, and its End
	opWrite = "write" // writes a value of the position store, or makes Owner its owner if Write is 0
	opList  = "list"  // returns the values of the position store
)

// The codes of the errors of a queue.
const (
	codeBusy       = "busy"
	codeMissing    = "missing"
	codeDenied     = "denied"
	codeRejected   = "rejected" // the record after the stored ones, for good
	codeSuperseded = "superseded"
)

// A message is a request, or the response to it, which has its ID.
type message struct {
	ID int
	Op string

	Destination string
	Writer      int64
	Known       bool // the process has written to the destination before
	Records     []sink.StoredRecord
	Offset, End int64
	Count       int

	Key   string
	Owner int // 0: anybody may write the value
	Write int // number of the write of the owner
	Value []byte

	Code   string // "": no error
	Delay  time.Duration
	Stored int
	Values []sink.StoredValue
}

// send writes a message in one piece.
func (m *message) send(to io.Writer) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// receive reads a message.
func receive(from io.Reader) (*message, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(from, b); err != nil {
		return nil, err
	}
	m := new(message)
	return m, json.Unmarshal(b, m)
}

func newQueue(n *network, h *history, rng *rand.Rand) *queue {
	h.queue = &queueWriters{claims: make(map[writer]*claim), acked: make(map[ackedRow]time.Time)}
	o := lane.Options{Broker: queueAddr, WindowRecords: []int{0, 1, 10, 100}[rng.IntN(4)], PerDestination: rng.IntN(3) == 0}
	o.RequestRecords, o.Outstanding = []int{1, 3, 50}[rng.IntN(3)], []int{0, 1, 10}[rng.IntN(3)]
	if rng.IntN(2) == 0 {
		o.RequestBytes = 1000
	}
	q := &queue{net: n, history: h, rng: rng, options: o, conns: make(map[*conn]struct{}), destinations: make(map[string][]sink.StoredRecord)}
	q.up()
	return q
}

// up makes the server accept connections.
func (q *queue) up() {
	q.net.listen(queueAddr, func(c *conn) {
		q.mu.Lock()
		q.conns[c] = struct{}{}
		q.mu.Unlock()
		q.serve(c)
		q.mu.Lock()
		delete(q.conns, c)
		q.mu.Unlock()
	})
}

// serve handles the requests of a connection, all at the same time.
func (q *queue) serve(c *conn) {
	c.swift(false)
	for {
		m, err := receive(c)
		if err != nil {
			return
		}
		f := q.draw(c, m)
		if f.kind != untouched {
			q.history.note("queue: run %d, %s %s: %s", c.run, m.Op, m.Destination, f)
		}
		if m.Op == opStore {
			q.history.wrote(c.run, c.in.written)
			q.history.judgeResend(writer{run: c.run, producer: m.Writer}, m, c.in.written)
		}
		if f.kind == late { // the server handles the request after it has closed the connection
			c.cut(false)
		}
		cured := q.curedUpTo() // a late request has been checked when it was received
		q.net.serving.Go(func() { q.handle(c, m, f, cured) })
	}
}

// handle handles a request according to its fate.
func (q *queue) handle(c *conn, m *message, f fate, cured int) {
	time.Sleep(f.before)
	res := q.respond(c.run, m, f, cured)
	if f.kind == lost {
		c.cut(false)
		return
	}
	time.Sleep(f.after)
	res.ID = m.ID
	_ = res.send(c) // the connection may be lost
}

func (q *queue) respond(run int, m *message, f fate, cured int) (res *message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if code := q.instead(m, f); code != "" {
		return &message{Code: code, Delay: f.throttle}
	}
	switch m.Op {
	case opStore:
		res = q.store(run, m, f, cured)
	case opRead:
		res = q.read(m)
	case opWrite:
		res = &message{Code: q.write(run, m)}
	case opList:
		res = &message{Values: slices.Clone(q.values)}
	default:
		res = new(message)
	}
	if f.kind == failed {
		return &message{Code: codeBusy}
	}
	return res
}

// read returns a page of a destination. The caller must hold mu.
func (q *queue) read(m *message) *message {
	stored, ok := q.destinations[m.Destination]
	if !ok {
		return &message{Code: codeMissing}
	}
	end := int64(len(stored))
	return &message{Records: stored[m.Offset:min(m.Offset+int64(m.Count), end)], End: end}
}

// instead returns the code of the error that the server returns and stores nothing, or "". The caller must hold mu.
func (q *queue) instead(m *message, f fate) string {
	switch {
	case m.Known && m.Destination == q.fates.deniedTopic && time.Now().Before(q.fates.deniedUntil):
		return q.deniedCode // not before a destination is known: after a while its rows would be dead letters
	case m.Op == opWrite && q.unsafe == positions, m.Op == opStore && q.unsafe == m.Destination, f.kind == rejected, f.kind == throttled:
		return codeBusy
	}
	return ""
}

// store stores the records of a request up to the first one that is rejected. The caller must hold mu.
func (q *queue) store(run int, m *message, f fate, cured int) *message {
	res := &message{Stored: len(m.Records)}
	if i := slices.IndexFunc(m.Records, func(r sink.StoredRecord) bool {
		return m.Destination != deadLetters && isPoison(string(r.Value), cured)
	}); i >= 0 {
		res.Stored, res.Code = i, codeRejected
	}
	if f.kind == partly {
		res.Stored, res.Code = int(f.part*float64(res.Stored+1)), codeBusy
	}
	for _, r := range m.Records[:res.Stored] {
		all := q.destinations[m.Destination]
		r.Offset = int64(len(all))
		q.destinations[m.Destination] = append(all, r)
		headers := make(map[string]string)
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		q.history.stored(writer{run: run, producer: m.Writer}, delivery.Coordinates{Topic: m.Destination, Offset: r.Offset}, record{string(r.Key), string(r.Value), headers})
	}
	if f.kind == partly {
		res.Stored = int(f.told * float64(res.Stored+1))
	}
	return res
}

// write writes a value, and returns the code of an error. A write that arrives behind a later one of its owner changes nothing.
// The caller must hold mu.
func (q *queue) write(run int, m *message) (code string) {
	switch {
	case m.Owner == 0:
	case m.Write == 0:
		if m.Owner > q.owner { // otherwise the request is late
			q.owner, q.written = m.Owner, 0
		}
		return ""
	case m.Owner != q.owner:
		return codeSuperseded
	case m.Write < q.written:
		return ""
	default:
		q.written = m.Write
	}
	q.values = slices.DeleteFunc(q.values, func(v sink.StoredValue) bool { return v.Key == m.Key })
	if len(m.Value) > 0 {
		q.values = append(q.values, sink.StoredValue{Key: m.Key, Value: m.Value, Place: m.Key})
	}
	q.history.recorded(writer{run: run}, positions+"/"+m.Key, m.Value)
	return ""
}

// draw draws the fate of a request.
func (q *queue) draw(c *conn, m *message) fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	kind, d := q.fates.drawKind(c.rng)
	f := fate{kind: kind, part: c.rng.Float64(), told: c.rng.Float64()}
	switch {
	case m.Op == opLogin && kind != untouched: // meanwhile the relay may lose the slot
		return fate{kind: slow, before: time.Duration(c.rng.Int64N(int64(queueTimeout)))}
	case m.Op == opLogin:
		return fate{}
	case kind == slow:
		f.before, f.after = d, d/2
	case kind == held:
		f.after = min(20*d, longestHold)
	case kind == late, kind == untouched && q.fates.makeLate(c):
		return lateFate(d, c.rng)
	case kind == throttled:
		f.throttle = d
	case (kind == denied || kind == missing) && m.Op == opStore:
		q.fates.deniedTopic, q.fates.deniedUntil, q.deniedCode = m.Destination, time.Now().Add(10*d), codeDenied
		if kind == missing {
			q.deniedCode = codeMissing
		}
	}
	return f
}

func (q *queue) curedUpTo() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cured
}

// newID returns the number of another Writer or owner.
func (q *queue) newID() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ids++
	return q.ids
}

// servers implements broker.
func (q *queue) servers() [][]*conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	return [][]*conn{sorted(slices.Collect(maps.Keys(q.conns)))}
}

// setFates implements broker.
func (q *queue) setFates(n *nemesis) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fates.weights = n.weights(queueFates)
}

// failOne implements broker.
func (q *queue) failOne(*rand.Rand) (start func()) {
	q.failAll()
	return q.up
}

// failAll implements broker.
func (q *queue) failAll() {
	q.history.note("queue: down")
	q.net.unlisten(queueAddr)
	conns := q.servers()[0]
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range conns {
		c.cut(q.rng.IntN(2) == 0)
	}
}

// heal implements broker.
func (q *queue) heal() {
	q.mu.Lock()
	q.fates = fates{}
	q.mu.Unlock()
	q.up()
	q.history.note("queue: healed")
}

// end implements broker.
func (q *queue) end() { q.failAll() }

// cure implements broker.
func (q *queue) cure(serial int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cured = max(q.cured, serial)
	q.history.note("queue: takes poison up to row %d now", q.cured)
}

// setUnsafe implements broker.
func (q *queue) setUnsafe(place string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unsafe = place
}
