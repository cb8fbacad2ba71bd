package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrStalled says that the broker has acknowledged nothing for too long. Sent records may be in their destinations.
var ErrStalled = errors.New("no record was acknowledged")

// Deliver writes the records that send sends with a Writer of its own, and returns the error of its Run, or else that of send: after nil, all
// of them are delivered. send calls Send and Flush of the Writer; its context ends when the Writer has ended. done is that of [Writer.Run].
// If the broker acknowledges nothing for limit, unless that is 0, the error wraps ErrStalled.
func Deliver(ctx context.Context, to Sink, cfg WriterConfig, limit time.Duration, send func(ctx context.Context, w Writer) error, done func(seqs []uint64, err error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	progress := func() {}
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			stop(fmt.Errorf("%w for %s: %s", ErrStalled, limit, to.Stat().StallReason))
		})
		defer timer.Stop()
		progress = func() { timer.Reset(limit) }
	}
	sending, ended := context.WithCancel(ctx)
	defer ended()
	writer := to.NewWriter(cfg)
	var failure error
	var running sync.WaitGroup // waited for below
	running.Go(func() {
		defer ended()
		failure = writer.Run(ctx, func(seqs []uint64, err error) {
			progress()
			done(seqs, err)
		})
	})
	err := send(sending, writer)
	writer.CloseSend()
	running.Wait()
	if failure != nil {
		return failure
	}
	return err
}

// DeliverAll delivers records in their order. The sequence of a record is its index plus 1; nil records are left out. done is called for each
// index. Otherwise it is [Deliver].
func DeliverAll(ctx context.Context, to Sink, cfg WriterConfig, limit time.Duration, records []*Record, done func(index int, err error)) error {
	return Deliver(ctx, to, cfg, limit, func(ctx context.Context, w Writer) error {
		for i, rec := range records {
			if rec == nil {
				continue
			}
			rec.Seq = uint64(i + 1)
			if err := w.Send(ctx, rec); err != nil {
				return err
			}
		}
		return nil
	}, func(seqs []uint64, err error) {
		for _, seq := range seqs {
			done(int(seq-1), err)
		}
	})
}
