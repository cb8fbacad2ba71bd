package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Broker behaviour that lets two relays of one slot disturb each other.
var (
	errOlderAccepted = errors.New("the broker accepts records of an older writer after a newer one has written: " +
		"if two relays overlap, only the relay's own fence limits how many records are duplicated out of order")
	errNewerRejected = errors.New("the broker rejects records of a newer writer after an older one has written: a standby that takes over cannot write")
)

// probeOrder creates a destination and writes to it as an older writer, as a newer one, and as the
// older one again. It returns nil if the broker accepts the first two records and rejects the third.
func probeOrder(ctx context.Context, broker sink.Broker, destination string) error {
	var writers [2]*probeWriter
	for n := range writers {
		on, err := broker.Open(ctx, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		writers[n] = &probeWriter{sink: on, destination: destination}
		defer writers[n].close()
	}
	older, newer := writers[0], writers[1]
	store, err := older.sink.OpenPositions(ctx, destination, "probe")
	if err != nil {
		return err
	}
	first, err := store.NextIdentity(ctx)
	if err != nil {
		return err
	}
	second, err := store.NextIdentity(ctx, first)
	if err != nil {
		return err
	}
	older.start(ctx, first)
	newer.start(ctx, second)
	if err := older.write(ctx); err != nil {
		return fmt.Errorf("write as the older writer: %w", err)
	}
	switch err := newer.write(ctx); {
	case errors.Is(err, sink.ErrSuperseded), errors.Is(err, sink.ErrIdentityUsed):
		return fmt.Errorf("%w: %w", errNewerRejected, err)
	case err != nil:
		return fmt.Errorf("write as the newer writer: %w", err)
	}
	switch err := older.write(ctx); {
	case err == nil:
		return errOlderAccepted
	case errors.Is(err, sink.ErrSuperseded):
		return nil
	default:
		return fmt.Errorf("write as the older writer after the newer one: %w", err)
	}
}

// A probeWriter writes to a destination as a relay does, with its own Sink and Writer.
type probeWriter struct {
	sink        sink.Sink
	destination string

	writer sink.Writer
	stop   context.CancelFunc
	acked  chan struct{} // one for each record
	ended  chan struct{} // closed when Run has returned
	err    error         // of Run
	seq    uint64
}

// start starts the Writer.
func (w *probeWriter) start(ctx context.Context, identity []byte) {
	ctx, w.stop = context.WithCancel(ctx)
	w.writer = w.sink.NewWriter(sink.WriterConfig{Identity: identity})
	w.acked, w.ended = make(chan struct{}, 2), make(chan struct{}) // at most two records are written
	go func() {
		defer close(w.ended)
		w.err = w.writer.Run(ctx, func(_ []uint64, err error) {
			if err == nil {
				w.acked <- struct{}{}
			}
		})
	}()
}

// write writes a record. It returns nil when the broker has acknowledged it, or why it has not.
func (w *probeWriter) write(ctx context.Context) error {
	w.seq++
	err := w.writer.Send(ctx, &sink.Record{
		Seq: w.seq, Topic: w.destination, Partition: sink.AnyPartition, Key: []byte("probe"), Value: []byte("probe"), Timestamp: time.Now(),
	})
	if err != nil {
		return err
	}
	w.writer.Flush()
	select {
	case <-w.acked:
		return nil
	case <-w.ended: // ctx has ended, or the Writer has failed
		if last := w.sink.Stat().LastError; ctx.Err() != nil && last != "" {
			return fmt.Errorf("%w (last error: %s)", w.err, last)
		}
		return w.err
	}
}

// close stops the Writer and closes the Sink.
func (w *probeWriter) close() {
	if w.writer != nil {
		w.stop()
		<-w.ended
	}
	_ = w.sink.Close() // the records are deleted with the destination
}
