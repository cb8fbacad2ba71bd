package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
)

// An attemptError is the failure of a handler, or of the commit of what it has done; all else is
// trouble with the database.
type attemptError struct{ err error }

func (e *attemptError) Error() string { return e.err.Error() }
func (e *attemptError) Unwrap() error { return e.err }

var (
	errTimeout  = errors.New("the attempt took longer than Config.Timeout")
	errNotYours = errors.New("inbox: the processor ends the transaction, not the handler")
)

// attempt runs the handler of e in tx, which holds the claim, then what else belongs into the
// transaction, and commits it.
func (p *Processor) attempt(ctx context.Context, tx pgx.Tx, e Event, last ...func() error) error {
	if err := p.call(ctx, tx, e); err != nil {
		return &attemptError{err}
	}
	for _, f := range last {
		if err := f(); err != nil {
			return err
		}
	}
	err := tx.Commit(ctx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return &attemptError{errors.New("the handler has returned nil although a statement of its transaction failed")}
	}
	if sqlState(err) != "" && !isShutdown(err) { // such as a deferred constraint
		return &attemptError{fmt.Errorf("commit: %w", err)}
	}
	return explain("commit", err)
}

// isShutdown reports whether the server said no because it stops, or was told to end the session.
func isShutdown(err error) bool { return sqlState(err)[:2] == "57" }

// call calls the handler of e.
func (p *Processor) call(ctx context.Context, tx pgx.Tx, e Event) (err error) {
	handler, ok := p.cfg.Handlers[e.Type]
	if !ok {
		return ErrUnknownType
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Timeout, errTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
			err = fmt.Errorf("%w: %w", errTimeout, err)
		}
	}()
	return handler(ctx, handlerTx{tx}, e)
}

// A handlerTx is a transaction that its user cannot end.
type handlerTx struct{ pgx.Tx }

// Commit refuses.
func (handlerTx) Commit(context.Context) error { return errNotYours }

// Rollback refuses.
func (handlerTx) Rollback(context.Context) error { return errNotYours }

// claim runs one of the claiming statements and reports whether it has claimed. The transaction
// must not outlive its client for long: whoever waits for the claim waits for its end.
func (p *Processor) claim(ctx context.Context, tx pgx.Tx, sql string, args ...any) (bool, error) {
	var batch pgx.Batch
	batch.Queue(setIdleTimeout, fmt.Sprint((p.cfg.Timeout + p.cfg.Grace + idleMargin).Milliseconds()))
	batch.Queue(sql, args...)
	results := tx.SendBatch(ctx, &batch)
	_, err := results.Exec()
	claimed := int64(0)
	if err == nil {
		tag, execErr := results.Exec()
		claimed, err = tag.RowsAffected(), execErr
	}
	return claimed == 1, explain("claim", finish(results, err))
}

// finish closes results and returns the first error, which Close would repeat.
func finish(results pgx.BatchResults, err error) error {
	if closeErr := results.Close(); err == nil {
		return closeErr
	}
	return err
}

const idleMargin = 5 * time.Second

// maxError is how much of an error is kept in inbox_events.
const maxError = 4000

// describe returns what is kept of an attempt's failure.
func describe(err error) string {
	s := err.Error()
	if p, ok := errors.AsType[*PanicError](err); ok {
		s += "\n\n" + string(p.Stack)
	}
	return text(s[:min(len(s), maxError)])
}
