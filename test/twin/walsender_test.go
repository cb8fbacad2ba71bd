package twin

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A sender is the WAL sender's state of a client that streams. postgres.mu guards it.
type sender struct {
	next     int           // index of the next transaction in the WAL
	start    pglogrepl.LSN // transactions that were committed before are not sent
	sent     pglogrepl.LSN // everything before has been sent
	told     pglogrepl.LSN // highest position that the client has confirmed
	heard    time.Time     // time of the last status update
	pinged   bool          // the sender has requested a reply
	asked    bool          // the client has requested a keepalive
	idled    pglogrepl.LSN // position of the last keepalive that was sent at the end of the WAL
	finished bool          // the client has sent CopyDone
}

// startReplication responds to START_REPLICATION.
func (c *client) startReplication(from pglogrepl.LSN) bool {
	c.mu.Lock()
	if c.slot.missing() {
		c.mu.Unlock()
		return c.send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42704", Message: `replication slot "slot" does not exist`}, ready())
	}
	if c.slot.user() != nil {
		c.mu.Unlock()
		busy := &pgproto3.ErrorResponse{Severity: "ERROR", Code: "55006", Message: `replication slot "slot" is active for PID 17`}
		return c.send(busy, ready())
	}
	c.history.started(c.conn.run, from, c.slot.confirmed)
	c.own(c)
	c.streaming = true
	start := max(from, c.slot.confirmed)
	c.sender = sender{start: start, sent: start, heard: time.Now()}
	if c.ends {
		time.AfterFunc(50*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.ends {
				c.terminate()
			}
		})
	}
	c.history.sentPosition(c.conn.run, from)
	c.history.sentPosition(c.conn.run, c.slot.confirmed)
	c.mu.Unlock()
	if !c.send(&pgproto3.CopyBothResponse{}) {
		return false
	}
	c.net.serving.Go(c.stream)
	return true
}

// stream sends until the stream ends or the connection is lost, and then releases the slot.
func (c *client) stream() {
	if !c.sendAll() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.abandon()
	}
}

// abandon closes a connection that does not work any longer. The caller must hold mu.
func (c *client) abandon() {
	c.gone = true
	c.conn.cut(true)
	c.disown(c)
}

// sendAll sends until the stream ends. It returns false if a write fails.
func (c *client) sendAll() bool {
	sentRelation := false
	for {
		tx, messages, last := c.work()
		if tx != nil {
			if !sentRelation {
				messages = append(messages, walData(0, relation()))
				sentRelation = true
			}
			if !c.sendTransaction(append(messages, messagesOf(tx)...)) {
				return false
			}
			c.mu.Lock()
			c.sender.sent = tx.endLSN
			c.mu.Unlock()
			continue
		}
		for _, m := range messages {
			if !c.write(m) {
				return false
			}
		}
		if last {
			return true
		}
	}
}

// work waits until there is something to send, and returns it. last reports whether the stream ends.
func (c *client) work() (tx *transaction, messages [][]byte, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.sender
	for {
		now := time.Now()
		dead, ping := s.heard.Add(c.timeout), s.heard.Add(c.timeout/2)
		if s.pinged {
			ping = time.Time{}
		}
		switch {
		case c.gone:
			return nil, nil, true
		case !now.Before(dead):
			c.history.note("postgres: ends a connection that is silent")
			c.abandon()
			return nil, nil, true
		case s.finished:
			c.streaming = false
			c.disown(c)
			done, _ := (&pgproto3.CopyDone{}).Encode(nil)
			done, _ = (&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}).Encode(done)
			done, _ = ready().Encode(done)
			return nil, [][]byte{done}, true
		case s.asked, !ping.IsZero() && !now.Before(ping):
			request := !s.asked
			s.pinged = s.pinged || request
			s.asked = false
			return nil, [][]byte{c.keepalive(s.sent, request)}, false
		}
		for s.next < len(c.log) && c.log[s.next].commitLSN < s.start {
			s.next++
		}
		if s.next < len(c.log) {
			tx := c.log[s.next]
			s.next++
			if !c.sends(tx) {
				continue
			}
			if len(tx.rows) > 0 || tx.message != "" || c.empty {
				c.history.sentPosition(c.conn.run, tx.endLSN)
				return tx, nil, false
			}
			s.sent = tx.endLSN
			continue
		}
		s.sent = max(s.sent, c.walEnd)
		switch {
		case c.state == stopping && s.told >= s.sent:
			c.gone = true
			c.disown(c)
			done, _ := (&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}).Encode(nil)
			c.history.note("postgres: its walsender ends, %s is confirmed", s.told)
			return nil, [][]byte{done}, true
		case c.state == stopping && !s.pinged:
			s.pinged = true
			return nil, [][]byte{c.keepalive(s.sent, true)}, false
		case s.told < s.sent && s.idled < s.sent:
			s.idled = s.sent
			return nil, [][]byte{c.keepalive(s.sent, false)}, false
		}
		await(c.changed, dead, ping)
	}
}

// keepalive returns a keepalive message. The caller must hold mu.
func (c *client) keepalive(end pglogrepl.LSN, request bool) []byte {
	c.history.sentPosition(c.conn.run, end)
	b := binary.BigEndian.AppendUint64([]byte{'k'}, uint64(end))
	b = binary.BigEndian.AppendUint64(b, 0)
	flag := byte(0)
	if request {
		flag = 1
	}
	return copyData(append(b, flag))
}

// sendTransaction sends messages, in groups of random size. Sometimes it sends a keepalive between
// two groups.
func (c *client) sendTransaction(messages [][]byte) bool {
	for len(messages) > 0 {
		rng := c.conn.rng
		n := min(1+rng.IntN(1+rng.IntN(40)), len(messages))
		var b []byte
		if rng.IntN(40) == 0 {
			c.mu.Lock()
			b = c.keepalive(c.sender.sent, rng.IntN(2) == 0)
			c.mu.Unlock()
		}
		for _, m := range messages[:n] {
			b = append(b, m...)
		}
		if !c.write(b) {
			return false
		}
		messages = messages[n:]
	}
	return true
}

// write writes bytes. If the client does not read, write keeps trying as long as status updates of the
// client arrive.
func (c *client) write(b []byte) bool {
	c.writing.take()
	defer c.writing.give()
	for {
		c.mu.Lock()
		dead := c.sender.heard.Add(c.timeout)
		c.mu.Unlock()
		if !time.Now().Before(dead) {
			return false
		}
		_ = c.conn.SetWriteDeadline(dead)
		n, err := c.conn.Write(b)
		if err == nil {
			return true
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		b = b[n:]
	}
}

// reply handles a status update.
func (c *client) reply(b []byte) {
	if len(b) != 34 || b[0] != 'r' {
		c.history.violated("status update %x", b)
		return
	}
	lsn := pglogrepl.LSN(binary.BigEndian.Uint64(b[1:]))
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.sender
	s.heard, s.pinged = time.Now(), false
	s.asked = s.asked || b[33] == 1
	if !c.gone && c.slot.owner == c {
		c.history.told(c.conn.run, lsn, s.told)
		s.told = max(s.told, lsn)
		c.slot.confirmed = max(c.slot.confirmed, lsn)
	}
	c.changed.Broadcast()
}

// endCopy handles the client's CopyDone.
func (c *client) endCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sender.finished = true
	c.changed.Broadcast()
}

// https://www.postgresql.org/docs/current/protocol-replication.html

func copyData(body []byte) []byte {
	b, _ := (&pgproto3.CopyData{Data: body}).Encode(nil)
	return b
}

func walData(start pglogrepl.LSN, data []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'w'}, uint64(start))
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	b = binary.BigEndian.AppendUint64(b, 0)
	return copyData(append(b, data...))
}

// https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

func relation() []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, tableOID)
	b = append(b, "public\x00outbox\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		b = append(append(append(b, 0), c...), 0)
		b = binary.BigEndian.AppendUint32(b, oidText)
		b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	}
	return b
}

// postgresEpoch is the zero of Postgres' timestamps.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// messagesOf returns the messages of a transaction.
func messagesOf(tx *transaction) [][]byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(tx.commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(tx.at.Sub(postgresEpoch).Microseconds()))
	messages := [][]byte{walData(tx.commitLSN, binary.BigEndian.AppendUint32(b, uint32(tx.xid)))}
	for _, r := range tx.rows {
		messages = append(messages, walData(tx.commitLSN, insert(r.id, r.topic, r.key, "Happened", r.value)))
	}
	if tx.message != "" {
		b := binary.BigEndian.AppendUint64([]byte{'M', 1}, uint64(tx.commitLSN))
		b = append(b, "outbox-cdc\x00"...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(tx.message)))
		messages = append(messages, walData(tx.commitLSN, append(b, tx.message...)))
	}
	b = binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(tx.commitLSN))
	b = binary.BigEndian.AppendUint64(b, uint64(tx.endLSN))
	return append(messages, walData(tx.commitLSN, binary.BigEndian.AppendUint64(b, uint64(tx.at.Sub(postgresEpoch).Microseconds()))))
}

func insert(values ...string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'I'}, tableOID), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
		b = append(b, v...)
	}
	return b
}
