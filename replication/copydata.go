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
			err = pgError("stream", body, streaming)
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
		data := body[walHeaderSize:]
		end, ended := commitEnd(data)
		if ended {
			r.reporter.read(end)
		}
		r.inside = !ended
		r.stopping.data()
		r.batch.addData(pglogrepl.LSN(binary.BigEndian.Uint64(body[1:])), data)
		return nil
	case len(body) == 1+8+8+1 && body[0] == 'k':
		k := Keepalive{WALEnd: pglogrepl.LSN(binary.BigEndian.Uint64(body[1:])), ReplyRequested: body[17] != 0}
		r.reporter.read(k.WALEnd)
		if now := time.Now(); r.stopping.keepalive(k, now, r.reporter.sent) {
			r.serverStops(now)
		}
		r.asked = r.asked || k.ReplyRequested
		r.batch.addKeepalive(k)
		return nil
	case len(body) == 0:
		return errors.New("empty message in the stream")
	}
	return fmt.Errorf("malformed message of type %q and %d bytes in the stream", body[0], len(body))
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

// notice ends the stream if it says that rows are being skipped: from Postgres 18 on, a
// publication that does not exist at the current position of the log is a mere warning.
func (r *run) notice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("read a NoticeResponse: %w", err)
	}
	if n.Code == notInPrerequisiteState {
		return fmt.Errorf("%w: the server skips its rows: %s; %s", ErrPublication, n.Message, n.Detail)
	}
	// Not the text: a function in a row filter may say anything.
	r.log.Warn("notice from the server, its log has the text",
		slog.String("severity", n.Severity), slog.String("sqlstate", n.Code))
	return nil
}
