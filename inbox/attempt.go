package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"
)

// An attemptError is a failure of a handler or of its commit. Other errors are about the database.
type attemptError struct{ err error }

func (e *attemptError) Error() string { return e.err.Error() }
func (e *attemptError) Unwrap() error { return e.err }

var (
	errTimeout   = errors.New("the attempt took longer than Config.Timeout")
	errCommit    = errors.New("inbox: the handler must not commit or roll back; the processor does when the handler returns")
	errSwallowed = errors.New("the handler returned nil although a statement of its transaction failed")
)

// attempt runs the handler of e in tx, which holds the claim, then beforeCommit, and commits.
func (p *Processor) attempt(ctx context.Context, tx pgx.Tx, e Event, beforeCommit ...func() error) error {
	if err := p.call(ctx, tx, e); err != nil {
		return &attemptError{err}
	}
	for _, f := range beforeCommit {
		if err := f(); err != nil {
			return err
		}
	}
	err := tx.Commit(ctx)
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return &attemptError{errSwallowed}
	}
	if sqlState(err) != "" && !isShutdown(err) { // such as a deferred constraint
		return &attemptError{fmt.Errorf("commit: %w", err)}
	}
	return explain("commit", err)
}

// isShutdown reports whether the server failed the statement because the server or the session ends.
func isShutdown(err error) bool { return sqlState(err)[:2] == "57" }

// call calls the handler of e.
func (p *Processor) call(ctx context.Context, tx pgx.Tx, e Event) (err error) {
	handler, ok := p.cfg.Handlers[e.Type]
	if !ok {
		return Permanent(ErrUnknownType)
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

// A handlerTx is a transaction that the handler cannot end.
type handlerTx struct{ pgx.Tx }

// Commit returns an error.
func (handlerTx) Commit(context.Context) error { return errCommit }

// Rollback returns an error.
func (handlerTx) Rollback(context.Context) error { return errCommit }

// claim runs a claiming statement and reports whether it has claimed. It also limits how long the
// transaction may be idle: if this host vanishes, others wait for its claim until then.
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
	return claimed == 1, explain("claim", closeResults(results, err))
}

// closeResults closes results and returns the first error, which Close would repeat.
func closeResults(results pgx.BatchResults, err error) error {
	if closeErr := results.Close(); err == nil {
		return closeErr
	}
	return err
}

const idleMargin = 5 * time.Second

// maxError is how many bytes of an error inbox_events keeps.
const maxError = 4000

// describe returns the text of an error for inbox_events.
func describe(err error) string {
	s := err.Error()
	if p, ok := errors.AsType[*PanicError](err); ok {
		s += "\n\n" + string(p.Stack)
	}
	return text(s[:min(len(s), maxError)])
}
