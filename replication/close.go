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

// Close confirms the position confirmed once more, as far as the session has read, ends the
// stream and closes the connection. It returns nil when the server has received the position and
// released the slot, or had already ended the stream. Close discards what the server still sends
// until then, such as the rest of a transaction. ctx limits how long that may take. Close is called
// once, after Run has returned or without Run.
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
	_ = s.during(ctx, s.hangUp) // the position is safe
	return nil
}

// endCopy reports confirmed and reads until the server has ended the copy, which it does
// after it has taken the report, or says why not. One that is stopping then closes the
// connection.
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

// hangUp ends the session. A server that has reported an error may still hold the slot: its
// process closes the connection when it holds nothing any more.
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

// during runs an exchange with the server that ends with ctx.
func (s *Stream) during(ctx context.Context, exchange func() error) error {
	release := interruptible(ctx, s.wire.conn.SetDeadline)
	err := exchange()
	if release() {
		return err
	}
	return context.Cause(ctx)
}

// interruptible lets the end of ctx end what blocks on the connection: it moves the
// deadline into the past. release ends that, and reports whether it has not happened; the
// deadline is then clear.
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
