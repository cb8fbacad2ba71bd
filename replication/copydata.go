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

// walHeaderSize is what precedes the plugin's bytes in a message: the kind, the position
// of the change, the server's end of log and its clock.
const walHeaderSize = 1 + 3*8

// cut moves what has been received into the batch. more is true when the batch is full and
// something may be left; the error says why the stream has ended, or that a large message
// follows.
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
		case kindCommandComplete: // without CopyDone: everything is confirmed and its process ends
			r.streaming = false
			err = fmt.Errorf("%w: it ended the stream, everything is confirmed", ErrServerStopping)
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

// copyData takes apart what a stream consists of.
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

// stoppingRequests is how many requests for a reply, with nothing in between, mean that the server is
// stopping. It does not say so: it waits until everything that it has sent is confirmed, and asks again as
// soon as it has got a reply. A server that only checks whether we live asks when half of its
// wal_sender_timeout has passed without a word from us.
// https://www.postgresql.org/docs/current/protocol-replication.html
const stoppingRequests = 3

// countRequest counts k if it is a request that follows soon after another one.
func (r *run) countRequest(k Keepalive) {
	if !k.replyRequested {
		r.requests = 0
		return
	}
	now := time.Now()
	if now.Sub(r.requested) >= r.patience()/4 {
		r.requests = 0
	}
	r.asked, r.requested = true, now
	r.requests++
}

// walData takes one message of the plugin.
func (r *run) walData(start pglogrepl.LSN, data []byte) {
	r.requests = 0
	if r.filter.discards(data, len(data)) {
		return
	}
	end, ended := commitEnd(data)
	if !ended {
		end, ended = messageEnd(data)
	}
	if ended {
		r.reporter.read(end)
		r.commitLSN = 0
	} else if lsn, ok := beginning(data); ok {
		r.commitLSN = lsn
	}
	r.inside = !ended
	r.batch.addData(start, data)
}

// messageEnd returns the end of a logical message that is not transactional: it stands by
// itself, and its LSN is that of the first byte behind it.
func messageEnd(data []byte) (end pglogrepl.LSN, ok bool) {
	if len(data) < messageHeaderSize || data[0] != 'M' || data[1] != 0 {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[2:])), true
}

// phase returns where in the stream the reading is.
func (r *run) phase() phase {
	if r.commitLSN == 0 {
		return between
	}
	return inside
}

// rowError returns err, as a *RowError if it is about a row.
func (r *run) rowError(err error) error {
	if errors.Is(err, ErrRow) {
		return &RowError{CommitLSN: r.commitLSN, Err: err}
	}
	return err
}

// beginning returns the commit LSN of a transaction if data is its Begin message: type,
// commit LSN, time, transaction id.
func beginning(data []byte) (commitLSN pglogrepl.LSN, ok bool) {
	if len(data) < 1+8+8+4 || data[0] != 'B' {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[1:])), true
}

// commitEnd returns the end position of a transaction if data is its Commit message: type,
// flags, commit LSN, end LSN, time.
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
func commitEnd(data []byte) (end pglogrepl.LSN, ok bool) {
	if len(data) < 1+1+8+8 || data[0] != 'C' {
		return 0, false
	}
	return pglogrepl.LSN(binary.BigEndian.Uint64(data[10:])), true
}

// standbyRoutine is the function of the server that warns, with the code of a publication that
// is missing, of a standby in synchronized_standby_slots that does not keep up: nothing is
// sent until it does, and nothing skipped.
const standbyRoutine = "StandbySlotsHaveCaughtup"

// noticeInterval is how often the same notice is logged: the server may repeat it with every
// row.
const noticeInterval = time.Minute

// notice ends the stream if it says that rows are being skipped: from Postgres 18 on, a
// publication that does not exist at the current position of the log is a mere warning.
func (r *run) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("read a NoticeResponse: %w", err)
	}
	standby := n.Routine == standbyRoutine
	if n.Code == notInPrerequisiteState && !standby {
		return fmt.Errorf("%w: the server skips its rows: %s: %s; %s", ErrPublication, n.Message, n.Detail, remedyPublication)
	}
	now := time.Now()
	if n.Code == r.noticed && now.Sub(r.noticedAt) < noticeInterval {
		return nil
	}
	r.noticed, r.noticedAt = n.Code, now
	if standby {
		r.log.Warn("the server sends nothing until a standby has it: bring that back, or change synchronized_standby_slots",
			slog.String("reason", n.Message))
		return nil
	}
	// Not the text: a function in a row filter may say anything.
	r.log.Warn("notice from the server, its log has the text",
		slog.String("severity", n.Severity), slog.String("sqlstate", n.Code))
	return nil
}
