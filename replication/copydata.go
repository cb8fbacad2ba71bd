package replication

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// walHeaderSize is the size of the header before the plugin's message: the type, the LSN of the
// change, the end of WAL on the server and its clock.
const walHeaderSize = 1 + 3*8

// cut parses the received bytes and adds the messages to the batch. more is true if the batch is
// full and bytes may be left. The error says why the stream has ended, or that a large message
// follows (*largeError).
func (r *run) cut() (more bool, err error) {
	for !r.batch.full() {
		kind, body, ok, err := r.wire.next()
		if !ok {
			return false, err
		}
		switch kind {
		case kindCopyData:
			err = r.copyData(body)
		case kindNotice:
			err = r.notice(body)
		case kindParameter:
		case kindError:
			r.streaming = false
			err = r.rowError(pgError("stream", body, r.phase()))
		case kindCopyDone:
			err = fmt.Errorf("%w: it ended the stream", ErrServerStopping)
		case kindCommandComplete: // without CopyDone: everything is confirmed, and the WAL sender ends
			r.streaming = false
			err = fmt.Errorf("%w: it ended the stream after everything was confirmed", ErrServerStopping)
		default:
			r.broken = true
			err = fmt.Errorf("unexpected message of type %q in the stream", kind)
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// copyData parses the body of a CopyData message: XLogData ('w') or a keepalive ('k').
// https://www.postgresql.org/docs/current/protocol-replication.html
func (r *run) copyData(body []byte) error {
	switch {
	case len(body) >= walHeaderSize && body[0] == 'w':
		r.walData(pglogrepl.LSN(binary.BigEndian.Uint64(body[1:])), body[walHeaderSize:])
		return nil
	case len(body) == 1+8+8+1 && body[0] == 'k':
		k := Keepalive{WALEnd: pglogrepl.LSN(binary.BigEndian.Uint64(body[1:])), replyRequested: body[17] != 0}
		r.reporter.read(k.WALEnd)
		r.countRequest(k)
		r.batch.addKeepalive(k)
		return nil
	case len(body) == 0:
		return errors.New("empty message in the stream")
	}
	return fmt.Errorf("malformed message of type %q and %d bytes in the stream", body[0], len(body))
}

// stoppingRequests is the number of requests for a reply, with nothing in between, from which we conclude
// that the server is shutting down. It does not say so: it waits until everything that it has sent is
// confirmed, and requests another reply as soon as it has one. A server that only checks whether the client
// is alive requests a reply after half of wal_sender_timeout without a message from the client.
// https://www.postgresql.org/docs/current/protocol-replication.html
const stoppingRequests = 3

// countRequest counts k if it is a request that follows soon after another one.
func (r *run) countRequest(k Keepalive) {
	if !k.replyRequested {
		r.requests = 0
		return
	}
	now := time.Now()
	if now.Sub(r.requested) >= r.effectiveTimeout()/4 {
		r.requests = 0
	}
	r.asked, r.requested = true, now
	r.requests++
}

// walData adds a message of the plugin to the batch, and follows transactions.
func (r *run) walData(start pglogrepl.LSN, data []byte) {
	r.requests = 0
	if r.discards(data, len(data)) {
		return
	}
	end, ended := commitEndLSN(data)
	if !ended {
		end, ended = messageEndLSN(data)
	}
	if ended {
		r.reporter.read(end)
		r.commitLSN = 0
	} else if lsn, ok := beginCommitLSN(data); ok {
		r.commitLSN = lsn
	}
	r.inside = !ended
	r.batch.addData(start, data)
}

// messageEndLSN returns the end LSN of data if it is a non-transactional logical message. Such a
// message is outside of transactions, and its LSN is that of the first byte after it.
func messageEndLSN(data []byte) (end pglogrepl.LSN, ok bool) {
	if len(data) < messageHeaderSize || data[0] != 'M' || data[1] != 0 {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[2:])), true
}

// phase returns inside if a transaction is being read, otherwise between.
func (r *run) phase() phase {
	if r.commitLSN == 0 {
		return between
	}
	return inside
}

// rowError returns err, as a *RowError if it wraps ErrRow.
func (r *run) rowError(err error) error {
	if errors.Is(err, ErrRow) {
		return &RowError{CommitLSN: r.commitLSN, Err: err}
	}
	return err
}

// beginCommitLSN returns the commit LSN of data if it is a Begin message: type, commit LSN, commit
// time, transaction id.
func beginCommitLSN(data []byte) (commitLSN pglogrepl.LSN, ok bool) {
	if len(data) < 1+8+8+4 || data[0] != 'B' {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])), true
}

// commitEndLSN returns the end LSN of data if it is a Commit message: type, flags, commit LSN, end
// LSN, commit time.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
func commitEndLSN(data []byte) (end pglogrepl.LSN, ok bool) {
	if len(data) < 1+1+8+8 || data[0] != 'C' {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[10:])), true
}

// standbyRoutine is the server function that warns that a standby in synchronized_standby_slots does
// not keep up. Postgres then sends nothing until it does, and skips nothing. The warning has the same
// SQLSTATE as the one for a missing publication.
const standbyRoutine = "StandbySlotsHaveCaughtup"

// noticeInterval is the minimum time between two log lines for the same notice, which the server
// may repeat with every row.
const noticeInterval = time.Minute

// notice logs a notice of the server. It returns an error if the notice says that Postgres skips
// rows: from version 18 on, Postgres only warns if the publication did not exist at the current
// position of the WAL.
func (r *run) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("read a NoticeResponse: %w", err)
	}
	standby := n.Routine == standbyRoutine
	if n.Code == notInPrerequisiteState && !standby {
		return fmt.Errorf("%w: Postgres skips its rows: %s: %s; %s", ErrUnpublished, n.Message, n.Detail, remedyPublication)
	}
	now := time.Now()
	if n.Code == r.noticed && now.Sub(r.noticedAt) < noticeInterval {
		return nil
	}
	r.noticed, r.noticedAt = n.Code, now
	if standby {
		r.log.Warn("Postgres waits for a standby in synchronized_standby_slots and sends nothing",
			slog.String("reason", n.Message))
		return nil
	}
	// The message stays out of the log: a function in a row filter may raise any text.
	r.log.Warn("warning from Postgres, the server log has its text",
		slog.String("severity", n.Severity), slog.String("sqlstate", n.Code))
	return nil
}
