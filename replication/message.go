package replication

import (
	"github.com/jackc/pglogrepl"
)

// A Message is a *WALData, a *Keepalive or a *RowError.
//
//sumtype:decl
type Message interface{ message() }

// WALData is one message of the output plugin.
type WALData struct {
	Start pglogrepl.LSN // of the change; 0/0 for some message types. Never confirm it
	Data  []byte        // the pgoutput message
}

// A Keepalive says that Postgres has sent everything before WALEnd. The Stream replies to it if
// the server requests that.
type Keepalive struct {
	WALEnd         pglogrepl.LSN
	replyRequested bool
}

func (*WALData) message()   {}
func (*Keepalive) message() {}
func (*RowError) message()  {}

const (
	arenaSize     = 256 << 10 // bytes of a batch, with the headers of its messages
	batchMessages = 2048      // maximum number of messages of a batch
	poolSize      = 4         // number of batches of a Stream
)

// A Batch is a sequence of messages of the stream. It belongs to the receiver until Release,
// with everything in it, including the Data of its messages. The Stream then reuses it.
type Batch struct {
	Messages []Message

	// Messages has pointers into these two, which therefore never grow.
	data       []WALData
	keepalives []Keepalive

	arena []byte // the wire reads into it, and messages are slices of it
	large []byte // for one message that does not fit into the arena; nil: none

	home     chan<- *Batch   // pool.free of its Stream; nil: no Stream made it
	largeOut chan<- struct{} // pool.large of its Stream
}

// Release returns b to its Stream. It must be called exactly once per batch, from any
// goroutine, also after Close. The Stream cannot read while all of its batches are in use.
// Release does nothing for a Batch that no Stream has made.
func (b *Batch) Release() {
	if b.home == nil {
		return
	}
	if b.large != nil {
		clear(b.data) // otherwise its pointers keep the large message in memory
		b.large = nil
		b.largeOut <- struct{}{}
	}
	select {
	case b.home <- b:
	default:
		panic("replication: batch released twice")
	}
}

// A pool has the free batches of a Stream, and one token for the memory of a large message, so
// that there is at most one at a time.
type pool struct {
	free  chan *Batch
	large chan struct{}
}

func newPool() *pool {
	p := &pool{free: make(chan *Batch, poolSize), large: make(chan struct{}, 1)}
	p.large <- struct{}{}
	for range poolSize {
		p.free <- &Batch{
			Messages:   make([]Message, 0, batchMessages),
			data:       make([]WALData, 0, batchMessages),
			keepalives: make([]Keepalive, 0, batchMessages),
			arena:      make([]byte, arenaSize),
			home:       p.free,
			largeOut:   p.large,
		}
	}
	return p
}

func (b *Batch) reset() {
	b.Messages, b.data, b.keepalives = b.Messages[:0], b.data[:0], b.keepalives[:0]
}

func (b *Batch) full() bool { return len(b.Messages) == cap(b.Messages) }

func (b *Batch) addData(start pglogrepl.LSN, data []byte) {
	b.data = append(b.data, WALData{Start: start, Data: data})
	b.Messages = append(b.Messages, &b.data[len(b.data)-1])
}

func (b *Batch) addKeepalive(k Keepalive) {
	b.keepalives = append(b.keepalives, k)
	b.Messages = append(b.Messages, &b.keepalives[len(b.keepalives)-1])
}
