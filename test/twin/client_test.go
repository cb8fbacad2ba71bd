package twin

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A client is the server's end of a connection.
type client struct {
	*postgres
	conn        *conn
	backend     *pgproto3.Backend // only serve receives from it
	settings    map[string]string
	replication bool
	pid         uint32

	writing turn // held while a message is written; do not take it while holding postgres.mu

	// postgres.mu guards these.
	snapshot  string // of its transaction
	gone      bool   // the server sends nothing more
	kept      bool   // something between the machines answers the server's keepalives
	canceled  bool   // its statement is to end
	streaming bool
	sender    sender
}

// serve handles one connection.
func (p *postgres) serve(conn *conn) {
	c := &client{postgres: p, conn: conn, backend: pgproto3.NewBackend(conn, conn), writing: newTurn()}
	m, err := c.backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if request, ok := m.(*pgproto3.CancelRequest); ok {
		p.cancel(request.ProcessID)
	}
	startup, ok := m.(*pgproto3.StartupMessage)
	if !ok {
		return
	}
	c.settings = startup.Parameters
	c.replication = c.settings["replication"] != ""
	p.mu.Lock()
	p.pids++
	c.pid = p.pids
	refuse := p.refuse
	if refuse == nil && p.state == running {
		p.clients[c] = struct{}{}
	}
	p.mu.Unlock()
	if refuse != nil {
		c.send(refuse)
		return
	}
	defer c.leave()
	defer c.probe()()
	c.send(&pgproto3.AuthenticationOk{}, &pgproto3.BackendKeyData{ProcessID: c.pid, SecretKey: []byte{0, 0, 0, 1}}, ready())
	c.converse()
}

// probe closes the connection when no data has passed for as long as the session's TCP keepalives allow, until the result is
// called.
func (c *client) probe() (stop func()) {
	seconds := func(name string) int { n, _ := strconv.Atoi(c.settings["tcp_keepalives_"+name]); return n }
	limit := time.Duration(seconds("idle")+seconds("interval")*seconds("count")) * time.Second
	if limit == 0 {
		return func() {}
	}
	done := make(chan struct{})
	c.net.serving.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for passed := time.Now(); ; {
			select {
			case <-ticker.C:
			case <-done:
				return
			}
			if !c.conn.frozen() || c.isKept() {
				passed = time.Now()
			}
			if time.Since(passed) >= limit {
				c.history.note("postgres: gives up a connection of run %d that does not answer keepalives", c.conn.run)
				c.conn.cut(true)
				return
			}
		}
	})
	return func() { close(done) }
}

func (c *client) isKept() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept
}

// leave removes the client and releases the slot if the client holds it.
func (c *client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	c.forget()
	delete(c.clients, c)
	c.disown(c)
}

// lose gives up the connection without informing the other end. The caller must hold postgres.mu.
func (c *client) lose() {
	c.gone = true
	c.conn.out.freeze(time.Hour)
	c.disown(c)
}

// terminate sends an error and closes the connection. The caller must hold postgres.mu.
func (c *client) terminate() {
	if c.gone {
		return
	}
	c.gone = true
	c.changed.Broadcast()
	b, _ := fatal("57P01", "terminating connection due to administrator command").Encode(nil)
	c.net.serving.Go(func() {
		c.writing.take()
		defer c.writing.give()
		_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.conn.Write(b)
		c.conn.out.end(errClosedByServer)
		c.conn.in.breakOff(errClosedByServer, syscall.EPIPE)
	})
}

// send writes messages in one piece, and reports whether that succeeded.
func (c *client) send(messages ...pgproto3.BackendMessage) bool {
	var b []byte
	for _, m := range messages {
		b, _ = m.Encode(b)
	}
	c.writing.take()
	defer c.writing.give()
	_, err := c.conn.Write(b)
	return err == nil
}

func ready() pgproto3.BackendMessage { return &pgproto3.ReadyForQuery{TxStatus: 'I'} }

// converse responds to messages until the client terminates the session.
func (c *client) converse() {
	statements := make(map[string]string)
	var portal *pgproto3.Bind
	for {
		m, err := c.backend.Receive()
		if err != nil {
			return
		}
		ok := true
		switch m := m.(type) {
		case *pgproto3.Terminate:
			return
		case *pgproto3.Query:
			ok = c.query(m.String)
		case *pgproto3.CopyData:
			c.reply(m.Data)
		case *pgproto3.CopyDone:
			c.endCopy()
		case *pgproto3.Parse:
			statements[m.Name] = m.Query
			ok = c.send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			kept := *m
			kept.Parameters = nil
			for _, v := range m.Parameters {
				kept.Parameters = append(kept.Parameters, bytes.Clone(v))
			}
			portal = &kept
			ok = c.send(&pgproto3.BindComplete{})
		case *pgproto3.Describe:
			name := m.Name
			if m.ObjectType == 'S' {
				ok = c.send(parametersOf(statements[name]))
			} else {
				name = portal.PreparedStatement
			}
			ok = ok && c.send(describe(statements[name]))
		case *pgproto3.Execute:
			ok = c.send(c.execute(statements[portal.PreparedStatement], portal.Parameters)...)
		case *pgproto3.Sync:
			ok = c.send(ready())
		}
		if !ok {
			return
		}
	}
}

var startReplication = regexp.MustCompile(`^START_REPLICATION SLOT "slot" LOGICAL ([0-9A-F/]+) `)

// query responds to a query of the simple protocol.
func (c *client) query(sql string) bool {
	switch {
	case sql == "IDENTIFY_SYSTEM":
		c.mu.Lock()
		timeline, end := strconv.Itoa(int(c.timeline)), c.walEnd
		c.mu.Unlock()
		return c.rows([]column{{"systemid", oidText}, {"timeline", oidInt4}, {"xlogpos", oidText}, {"dbname", oidText}},
			[]string{systemID, timeline, end.String(), "app"})
	case strings.HasPrefix(sql, "TIMELINE_HISTORY "):
		c.mu.Lock()
		var file strings.Builder
		for i, fork := range c.forks {
			fmt.Fprintf(&file, "%d\t%s\tno recovery target specified\n\n", i+1, fork)
		}
		c.mu.Unlock()
		return c.rows([]column{{"filename", oidText}, {"content", oidText}}, []string{"history", file.String()})
	case strings.HasPrefix(sql, "SELECT lower(name), setting"):
		rows := [][]string{{"wal_sender_timeout", millis(c.timeout)}}
		for name, value := range c.settings {
			rows = append(rows, []string{name, value})
		}
		return c.rows([]column{{"name", oidText}, {"setting", oidText}}, rows...)
	case startReplication.MatchString(sql):
		from, err := pglogrepl.ParseLSN(startReplication.FindStringSubmatch(sql)[1])
		return err == nil && c.startReplication(from)
	}
	if answered, ok := c.refillQuery(sql); answered {
		return ok
	}
	c.history.violated("unexpected query %q", sql)
	return false
}

func (c *client) rows(columns []column, rows ...[]string) bool {
	messages := []pgproto3.BackendMessage{rowDescription(columns)}
	for _, row := range rows {
		messages = append(messages, dataRow(row))
	}
	return c.send(append(messages, &pgproto3.CommandComplete{CommandTag: []byte("SELECT")}, ready())...)
}
