// Package walproxy is a proxy between a relay and Postgres that parses the replication protocol. It
// reports positions and events to a [Watcher]. A [Tamper] can change messages.
package walproxy

import (
	"bytes"
	"encoding/binary"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// This file parses parts of
// https://www.postgresql.org/docs/current/protocol-replication.html and
// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html.
// It does not use the relay's decoder, because tests check that decoder with it.

// A WALMessage holds the type and the positions of a pgoutput message.
type WALMessage struct {
	Kind      byte // pgoutput's message type; 0 if the body is not XLogData
	CommitLSN pglogrepl.LSN
	EndLSN    pglogrepl.LSN // of a Commit
}

// walHeader is the size of an XLogData message without its data.
const walHeader = 1 + 3*8

// ParseWAL parses the body of a CopyData message of the server.
func ParseWAL(body []byte) WALMessage {
	if len(body) <= walHeader || body[0] != 'w' {
		return WALMessage{}
	}
	m := WALMessage{Kind: body[walHeader]}
	switch data := body[walHeader+1:]; {
	case m.Kind == 'B' && len(data) >= 8:
		m.CommitLSN = lsn(data)
	case m.Kind == 'C' && len(data) >= 17:
		m.CommitLSN, m.EndLSN = lsn(data[1:]), lsn(data[9:])
	}
	return m
}

// ParseKeepalive returns the position of a Primary keepalive message. body is the
// body of a CopyData message of the server.
func ParseKeepalive(body []byte) (walEnd pglogrepl.LSN, ok bool) {
	if len(body) < 9 || body[0] != 'k' {
		return 0, false
	}
	return lsn(body[1:]), true
}

// ParseStatus returns the flush position of a Standby status update. body is the
// body of a CopyData message of the relay. The relay always sends equal write and
// flush positions.
func ParseStatus(body []byte) (flush pglogrepl.LSN, ok bool) {
	if len(body) < 1+3*8 || body[0] != 'r' {
		return 0, false
	}
	return lsn(body[1+8:]), true
}

// PutStatus overwrites the positions of a Standby status update.
func PutStatus(body []byte, flush pglogrepl.LSN) {
	for i := range 3 { // written, flushed, applied
		binary.BigEndian.PutUint64(body[1+8*i:], uint64(flush))
	}
}

// parseStart returns the position of a START_REPLICATION … LOGICAL command. body is
// the body of a Query message.
func parseStart(body []byte) (from pglogrepl.LSN, ok bool) {
	if !bytes.HasPrefix(body, []byte("START_REPLICATION ")) {
		return 0, false
	}
	_, rest, ok := bytes.Cut(body, []byte(" LOGICAL "))
	text, _, _ := bytes.Cut(rest, []byte(" "))
	from, err := pglogrepl.ParseLSN(string(bytes.TrimRight(text, "\x00")))
	return from, ok && err == nil
}

// createsSlot reports whether body, of a Query message, is a command that creates slot.
func createsSlot(body []byte, slot string) bool {
	return bytes.HasPrefix(body, []byte(`CREATE_REPLICATION_SLOT "`+slot+`" `))
}

// parseCreatedSlot returns the position from which a new slot delivers. body is the body of a DataRow
// message. ok is false if it is not the response to the command that creates slot.
func parseCreatedSlot(body []byte, slot string) (position pglogrepl.LSN, ok bool) {
	var row pgproto3.DataRow
	const name, point, plugin, columns = 0, 1, 3, 4
	if row.Decode(body) != nil || len(row.Values) != columns || string(row.Values[name]) != slot || string(row.Values[plugin]) != "pgoutput" {
		return 0, false
	}
	position, err := pglogrepl.ParseLSN(string(row.Values[point]))
	return position, err == nil
}

func lsn(b []byte) pglogrepl.LSN { return pglogrepl.LSN(binary.BigEndian.Uint64(b)) }
