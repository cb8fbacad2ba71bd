package pump

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Run sends the pending copy, then the batches of a session. It returns nil when batches is closed, or
// when stop is closed and no transaction is open. If ctx ends, it returns the cause.
func (p *Pump) Run(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) error {
	defer p.progress.Add(&p.counts)
	if p.copy != nil {
		if err := p.takeTurn(ctx); err != nil {
			return err
		}
		stopped, err := p.sendCopy(ctx, stop)
		p.endTurn()
		if stopped || err != nil {
			return err
		}
	}
	for {
		batch, err := p.nextBatch(ctx, stop, batches)
		if batch == nil {
			return err
		}
		if err := p.takeTurn(ctx); err != nil {
			batch.Release()
			return err
		}
		stopped, err := p.pumpBatch(ctx, stop, batch)
		p.endTurn()
		batch.Release()
		if stopped || err != nil {
			return err
		}
		p.progress.Add(&p.counts)
	}
}

// takeTurn waits until no release pauses the pump.
func (p *Pump) takeTurn(ctx context.Context) error {
	if p.turn == nil {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endTurn lets a release pause the pump.
func (p *Pump) endTurn() {
	if p.turn != nil {
		<-p.turn
	}
}

// nextBatch returns the next batch, or nil at the end. If no batch is waiting, it flushes the writer,
// which has no timer of its own.
func (p *Pump) nextBatch(ctx context.Context, stop <-chan struct{}, batches <-chan *replication.Batch) (*replication.Batch, error) {
	if p.tx != nil {
		stop = nil // the pump stops at a transaction boundary
	}
	if stopped, err := p.waitForAcks(ctx, stop, MaxWindow-1); stopped || err != nil {
		return nil, err
	}
	select {
	case batch := <-batches:
		return batch, nil
	default:
		p.writer.Flush()
	}
	select {
	case batch := <-batches:
		return batch, nil
	case <-stop:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pumpBatch sends the rows of one batch. It reports true if stop is closed and a transaction has
// ended. The rest of the batch is then not handled; the next session reads it again.
func (p *Pump) pumpBatch(ctx context.Context, stop <-chan struct{}, batch *replication.Batch) (bool, error) {
	for _, m := range batch.Messages {
		ended, err := p.Handle(ctx, m)
		if err != nil {
			return false, err
		}
		if ended && isClosed(stop) {
			return true, nil
		}
	}
	return false, nil
}
