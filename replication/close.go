package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Close confirms the position confirmed, as far as the session has read, ends the stream and
// closes the connection. It returns nil when the server has received the position and released
// the slot, or if the server had already ended the stream. Close discards what the server still
// sends, such as the rest of a transaction. ctx limits how long that may take. Close must be
// called once, after Run has returned or without Run.
func (s *Stream) Close(ctx context.Context, confirmed pglogrepl.LSN) error {
	defer func() { _ = s.wire.conn.Close() }()
	if s.broken {
		return fmt.Errorf("%w: end the stream: the connection is lost", ErrUnreachable)
	}
	if s.streaming {
		confirmed, err := s.reporter.reportable(confirmed)
		if err != nil {
			return err
		}
		var refused error
		err = s.during(ctx, func() (err error) {
			refused, err = s.endCopy(confirmed)
			return err
		})
		if refused != nil || err != nil {
			return cmp.Or(refused, wrap(ctx, "end the stream", err, querying))
		}
	}
	_ = s.during(ctx, s.hangUp) // the position is confirmed, so the error does not matter
	return nil
}

// endCopy sends a last status update and CopyDone, and reads until the server has ended the copy.
// By then the server has processed the status update. refused is the error of the server if it
// reports one. A server that shuts down closes the connection instead of sending ReadyForQuery.
func (s *Stream) endCopy(confirmed pglogrepl.LSN) (refused, err error) {
	if err := s.reporter.send(time.Now(), confirmed, false); err != nil {
		return nil, err
	}
	if err := s.send(&pgproto3.CopyDone{}); err != nil {
		return nil, err
	}
	for ended := false; ; {
		kind, body, ok, err := s.wire.next()
		large, isLarge := errors.AsType[*largeError](err)
		switch {
		case isLarge:
			s.wire.skip(large.size)
			continue
		case err == nil && !ok:
			err = s.wire.read()
		}
		switch {
		case ended && errors.Is(err, io.ErrUnexpectedEOF):
			return nil, nil
		case err != nil:
			return nil, err
		case !ok:
			continue
		}
		switch kind {
		case kindCopyDone, kindCommandComplete:
			ended = true
		case kindError:
			return pgError("end the stream", body, between), nil
		case kindReady:
			return nil, nil
		}
	}
}

// hangUp sends Terminate and waits until the server closes the connection. The WAL sender closes it
// after it has released the slot, also if it has reported an error.
func (s *Stream) hangUp() error {
	if err := s.send(&pgproto3.Terminate{}); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, s.wire.conn)
	return err
}

func (s *Stream) send(m pgproto3.FrontendMessage) error {
	b, err := m.Encode(nil)
	if err != nil {
		return err
	}
	_, err = s.wire.conn.Write(b)
	return err
}

// during calls exchange, which reads from and writes to the server, and interrupts it when ctx is
// done.
func (s *Stream) during(ctx context.Context, exchange func() error) error {
	release := interruptible(ctx, s.wire.conn.SetDeadline)
	err := exchange()
	if release() {
		return err
	}
	return context.Cause(ctx)
}

// interruptible makes the end of ctx interrupt reads and writes: it sets a deadline in the past.
// set is the method of the connection that sets the deadline. release stops this and clears the
// deadline. It reports whether ctx has not interrupted anything.
func interruptible(ctx context.Context, set func(time.Time) error) (release func() bool) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = set(time.Unix(1, 0))
		close(interrupted)
	})
	return func() bool {
		if !stop() {
			<-interrupted
			_ = set(time.Time{})
			return false
		}
		_ = set(time.Time{})
		return true
	}
}
