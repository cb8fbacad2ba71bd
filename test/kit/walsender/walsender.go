// Package walsender implements the server's side of a replication connection, for tests that script the
// messages of a WAL sender.
package walsender

import (
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
)

// A Conn is the server's side of a replication connection. Only one goroutine at a time may use it.
type Conn struct {
	*pgproto3.Backend

	Net     net.Conn
	Startup map[string]string // parameters of the startup message; set by Accept
}

// New returns the server's side of conn.
func New(conn net.Conn) *Conn {
	return &Conn{Backend: pgproto3.NewBackend(conn, conn), Net: conn}
}

// Accept reads the startup message and accepts the session without a password.
func (c *Conn) Accept() error {
	m, err := c.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	startup, ok := m.(*pgproto3.StartupMessage)
	if !ok {
		return fmt.Errorf("%T in place of a startup message", m)
	}
	c.Startup = startup.Parameters
	c.Send(&pgproto3.AuthenticationOk{})
	c.SendReady()
	return nil
}

// SendReady sends ReadyForQuery and flushes the buffered messages.
func (c *Conn) SendReady() {
	c.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	_ = c.Flush()
}

// SendRows responds to a query with rows in text format.
func (c *Conn) SendRows(columns []string, rows ...[]string) {
	var description pgproto3.RowDescription
	for _, name := range columns {
		description.Fields = append(description.Fields, pgproto3.FieldDescription{Name: []byte(name), DataTypeOID: 25})
	}
	c.Send(&description)
	for _, row := range rows {
		var values pgproto3.DataRow
		for _, v := range row {
			values.Values = append(values.Values, []byte(v))
		}
		c.Send(&values)
	}
	c.Send(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "SELECT %d", len(rows))})
	c.SendReady()
}

// SendSystem responds to IDENTIFY_SYSTEM.
func (c *Conn) SendSystem(timeline string) {
	c.SendRows([]string{"systemid", "timeline", "xlogpos", "dbname"}, []string{"7000000000000000001", timeline, "0/FF", "app"})
}

// SendSettings responds to the query for the settings of the session.
func (c *Conn) SendSettings(settings map[string]string) {
	var rows [][]string
	for name, value := range settings {
		rows = append(rows, []string{name, value})
	}
	c.SendRows([]string{"name", "setting"}, rows...)
}

// StartCopy responds to START_REPLICATION. The stream begins after it.
func (c *Conn) StartCopy() {
	c.Send(&pgproto3.CopyBothResponse{})
	_ = c.Flush()
}
