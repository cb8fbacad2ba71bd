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

// Deliver writes records with a Writer of its own, in their order, and returns the error of its Run: after nil, all of them are
// delivered. The sequence of a record is its index plus 1; nil records are left out. done is called as that of [Writer.Run], for
// each index. If the broker acknowledges nothing for limit, the error wraps ErrStalled.
func Deliver(ctx context.Context, to Sink, cfg WriterConfig, records []*Record, limit time.Duration, done func(index int, err error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	writer := to.NewWriter(cfg)
	timer := time.AfterFunc(limit, func() {
		stop(fmt.Errorf("%w for %s: %s", ErrStalled, limit, to.Stat().StallReason))
	})
	defer timer.Stop()
	var ended error
	var running sync.WaitGroup // waited for below
	running.Go(func() {
		ended = writer.Run(ctx, func(seqs []uint64, err error) {
			timer.Reset(limit)
			for _, seq := range seqs {
				done(int(seq-1), err)
			}
		})
	})
	for i, rec := range records {
		if rec == nil {
			continue
		}
		rec.Seq = uint64(i + 1)
		if writer.Send(ctx, rec) != nil {
			break // Run says why
		}
	}
	writer.CloseSend()
	running.Wait()
	return ended
}
