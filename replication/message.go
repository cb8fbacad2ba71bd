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
	Start pglogrepl.LSN // of the change; 0/0 for some kinds. Not a position to confirm
	Data  []byte        // pgoutput bytes
}

// A Keepalive says that everything before WALEnd has been sent.
type Keepalive struct {
	WALEnd         pglogrepl.LSN
	replyRequested bool // the Stream replies by itself
}

func (*WALData) message()   {}
func (*Keepalive) message() {}
func (*RowError) message()  {}

const (
	arenaSize     = 256 << 10 // bytes of a batch, with the framing of its messages
	batchMessages = 2048      // messages of a batch at most
	poolSize      = 4         // batches of a stream
)

// A Batch is a run of messages that were read back to back. It and everything in it, the
// Data of its messages too, belongs to the receiver until Release, and to the Stream again
// after that.
type Batch struct {
	Messages []Message

	// Messages point into these two. They never grow, so the pointers stay good.
	data       []WALData
	keepalives []Keepalive

	arena []byte // what is received is read into it and stays there
	large []byte // memory for a single message that does not fit into the arena, or nil

	home     chan<- *Batch   // the pool it returns to; nil: made by no Stream
	largeOut chan<- struct{} // takes back the right to have large memory
}

// Release gives b back to the Stream, which cannot read while all its batches are out. It
// must be called once. Any goroutine, also after the Stream is closed. For a Batch that no
// Stream made it does nothing.
func (b *Batch) Release() {
	if b.home == nil {
		return
	}
	if b.large != nil {
		clear(b.data) // the message in it would stay until the batch is as full again
		b.large = nil
		b.largeOut <- struct{}{}
	}
	select {
	case b.home <- b:
	default:
		panic("replication: batch released twice")
	}
}

// A pool is the memory of a stream: its batches, and the right to have one message beyond
// the size of an arena in memory at a time.
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
