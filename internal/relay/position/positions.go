package position

import (
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/internal/parking"
)

// Positions are the parts of a process that know and write how far the relay is. They outlive ownerships.
type Positions struct {
	Record   *Record
	Recorder *Recorder
	Starter  *Starter
	Writer   *Writer
	Parked   *ParkedKeys
	Timeline *Timeline
}

// A Config says how positions are stored.
type Config struct {
	Store *Store

	// AcceptGap lets the first ownership start although the slot does not continue at the record.
	AcceptGap bool

	// Parked is the set of parked keys. Nil: the relay parks no keys.
	Parked *parking.Set

	// DeadLetters is the destination of the records of parked keys, for messages.
	DeadLetters string

	Log *slog.Logger
}

// New returns the Positions in a Store, which need not be open yet.
func New(cfg Config) *Positions {
	p := &Positions{
		Record: new(Record), Timeline: new(Timeline),
		Parked: &ParkedKeys{store: cfg.Store, set: cfg.Parked, storing: make(chan struct{}, 1)},
	}
	p.Recorder = &Recorder{store: cfg.Store, record: p.Record, writing: make(chan struct{}, 1)}
	p.Writer = &Writer{
		record: p.Record, recorder: p.Recorder, parked: p.Parked, timeline: p.Timeline, log: cfg.Log, wake: make(chan struct{}, 1), refilled: make(chan struct{}, 1),
	}
	p.Starter = &Starter{
		store: cfg.Store, record: p.Record, recorder: p.Recorder, parked: p.Parked, writer: p.Writer,
		deadLetters: cfg.DeadLetters, acceptGap: cfg.AcceptGap, log: cfg.Log,
	}
	return p
}
