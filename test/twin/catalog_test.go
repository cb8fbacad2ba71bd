package twin

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The system identifier of the server and the OID of the table.
const (
	systemID = "7000000000000000001"
	tableOID = 16385
)

// The table's columns, all of them text.
var columns = []string{"id", "aggregatetype", "aggregateid", "type", "payload"}

// OIDs of the types that catalog columns have.
const (
	oidBool   = 16
	oidInt8   = 20
	oidInt4   = 23
	oidFloat8 = 701
	oidText   = 25
	oidOID    = 26

	oidOIDArray = 1028
	oidJSONB    = 3802
)

type column struct {
	name string
	oid  uint32
}

// null stands for NULL in a row.
const null = "\x00"

// A statement is a query of the relay, recognized by a part of its text.
type statement struct {
	part   string
	types  string // of its columns: bool, int8, int4, text, oid, oid[]
	answer func(c *client, args [][]byte) [][]string
}

var statements = []statement{
	{"pg_logical_emit_message", "bt", nil},
	{"WITH RECURSIVE name", "ottttO8b", func(*client, [][]byte) [][]string {
		return [][]string{{strconv.Itoa(tableOID), "public", "outbox", "r", "p", "{}", "690", "t"}}
	}},
	{"pg_control_system()", "4ttbtttt88j", (*client).server},
	{"FROM pg_catalog.pg_publication p WHERE", "o8otbbbbbbj", func(*client, [][]byte) [][]string {
		return [][]string{{"16400", "700", "10", "pub", "t", "f", "f", "f", "f", "f", "{}"}}
	}},
	{"pg_catalog.pg_publication_rel", "oottbtb", func(*client, [][]byte) [][]string {
		return [][]string{{"16401", strconv.Itoa(tableOID), "public", "outbox", "f", "", "f"}}
	}},
	{"pg_publication_tables", "ottbtbtto4tbtb", func(*client, [][]byte) [][]string {
		var rows [][]string
		for _, name := range columns {
			rows = append(rows, []string{strconv.Itoa(tableOID), "public", "outbox", "f", "", "f", "", name, "25", "-1", "text", "t", "", "t"})
		}
		return rows
	}},
	{"pg_terminate_backend(active_pid)", "b", (*client).endSender},
	{"pg_terminate_backend(pid, ", "b", (*client).endSetup},
	{"pg_replication_slots", "tttb4ttt8bbt8bbt8888tt", (*client).slots},
	{"pg_stat_activity WHERE pid::text = $1", "b", (*client).runs},
	{"l.locktype = 'transactionid'", "4ttbtttttff", (*client).holders},
	{"SELECT pg_catalog.current_setting('lock_timeout')", "t", func(c *client, _ [][]byte) [][]string { return [][]string{{c.settings["lock_timeout"] + "ms"}} }},
	{"locktype = 'advisory'", "t", func(*client, [][]byte) [][]string { return [][]string{{"process 1"}} }},
	{"pg_prepared_xacts", "o4ttttt8", func(*client, [][]byte) [][]string { return nil }},
	{"pg_drop_replication_slot", "t", (*client).dropSlot},
	{"pg_current_snapshot() AS s", "t", func(c *client, _ [][]byte) [][]string { return [][]string{{c.snapshot}} }},
	{"has_any_column_privilege", "b", func(*client, [][]byte) [][]string { return [][]string{{"t"}} }},
	{"has_table_privilege", "b", func(*client, [][]byte) [][]string { return [][]string{{"t"}} }},
	{"row_security_active", "tttb", func(*client, [][]byte) [][]string { return nil }},
	{"pg_attrdef", "tttt", func(*client, [][]byte) [][]string {
		return [][]string{{"xid", "xid8", "", "pg_current_xact_id()"}, {"position", "bigint", "", "identity"}}
	}},
	{"pg_logical_slot_peek_binary_changes", "t", func(*client, [][]byte) [][]string { return nil }}, // nobody drops tables
	{"pg_catalog.count(*) FROM (SELECT", "8", nil},
	{"SELECT EXISTS (SELECT FROM", "b", func(*client, [][]byte) [][]string { return [][]string{{"t"}} }}, // nobody deletes rows
}

func find(sql string) statement {
	for _, s := range statements {
		if strings.Contains(sql, s.part) {
			return s
		}
	}
	return statement{}
}

func (c *client) server([][]byte) [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [][]string{{"160004", systemID, "app", "f", "logical", "", "UTF8", c.walEnd.String(), "-1", "0", "[]"}}
}

// endSender terminates the WAL sender that holds the slot, if it has the PID in the arguments.
func (c *client) endSender(args [][]byte) [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := c.slot.owner
	if owner == nil || strconv.Itoa(int(owner.pid)) != string(args[1]) {
		return nil
	}
	c.history.note("run %d: has the server end its process %d", c.conn.run, owner.pid)
	if owner.conn.run != c.conn.run {
		c.history.violated("run %d: has the connection of run %d ended", c.conn.run, owner.conn.run)
	}
	owner.terminate()
	return [][]string{{"t"}}
}

// endSetup terminates the sessions that hold the advisory lock or create the slot, of those with the PIDs in the arguments.
func (c *client) endSetup(args [][]byte) (ended [][]string) {
	pids := strings.Fields(string(args[0]))
	c.each(func(other *client) {
		if other != c.locked && other != c.slot.creator || !slices.Contains(pids, strconv.Itoa(int(other.pid))) {
			return
		}
		c.history.note("run %d: has the server end its process %d", c.conn.run, other.pid)
		if other.conn.run != c.conn.run {
			c.history.violated("run %d: has the connection of run %d ended", c.conn.run, other.conn.run)
		}
		other.forget()
		other.terminate()
		ended = append(ended, []string{"t"})
	})
	return ended
}

// runs reports whether there is a session with the PID in the arguments.
func (c *client) runs(args [][]byte) [][]string {
	found := "f"
	c.each(func(other *client) {
		if !other.gone && strconv.Itoa(int(other.pid)) == string(args[0]) {
			found = "t"
		}
	})
	return [][]string{{found}}
}

// holders returns the open transactions as the holders of locks.
func (c *client) holders([][]byte) (found [][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range c.xids.open {
		found = append(found, []string{"99", "", "", "f", "writer", "app", "slow", "idle in transaction", "BEGIN", null, null})
	}
	return found
}

func (c *client) slots([][]byte) [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot.missing() {
		return nil
	}
	active, pid := "f", "0"
	if user := c.slot.user(); user != nil {
		active, pid = "t", strconv.Itoa(int(user.pid))
		if user == c.slot.owner && user.conn.run == c.conn.run {
			c.history.looked(c.conn.run)
		}
	}
	lsn := c.slot.confirmed.String()
	return [][]string{{"slot", "pgoutput", "app", active, pid, lsn, lsn, "reserved", null, "f", "f", "", "0", "f", "f", "", "0", "0", "0", "0", "outbox-cdc", ""}}
}

// execute runs a statement.
func (c *client) execute(sql string, args [][]byte) []pgproto3.BackendMessage {
	s := find(sql)
	if s.types == "" {
		c.history.violated("unexpected statement %q", sql)
	}
	var rows [][]string
	if m := countRows.FindStringSubmatch(sql); m != nil {
		if c.counted != nil {
			c.counted()
		}
		rows = [][]string{{strconv.Itoa(len(c.table(m[1])))}}
	} else if s.answer != nil {
		rows = s.answer(c, args)
	} else { // pg_logical_emit_message: when the relay reads the message, it knows that earlier transactions are delivered
		c.commit(func(tx *transaction) { tx.message = string(args[1]) + "|" + c.xids.snapshot() })
		rows = [][]string{{"t", "0/1"}}
	}
	var messages []pgproto3.BackendMessage
	for _, row := range rows {
		messages = append(messages, dataRow(row))
	}
	return append(messages, &pgproto3.CommandComplete{CommandTag: []byte("SELECT")})
}

// describe returns the columns of a statement.
func describe(sql string) pgproto3.BackendMessage {
	oids := map[rune]uint32{'b': oidBool, '8': oidInt8, '4': oidInt4, 't': oidText, 'f': oidFloat8, 'o': oidOID, 'O': oidOIDArray, 'j': oidJSONB}
	var columns []column
	for _, t := range find(sql).types {
		columns = append(columns, column{"c", oids[t]})
	}
	return rowDescription(columns)
}

func parametersOf(sql string) pgproto3.BackendMessage {
	d := new(pgproto3.ParameterDescription)
	for n := 1; strings.Contains(sql, "$"+strconv.Itoa(n)); n++ {
		d.ParameterOIDs = append(d.ParameterOIDs, oidText)
	}
	return d
}

func rowDescription(columns []column) pgproto3.BackendMessage {
	d := new(pgproto3.RowDescription)
	for _, c := range columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte(c.name), DataTypeOID: c.oid, DataTypeSize: -1, TypeModifier: -1})
	}
	return d
}

func dataRow(values []string) pgproto3.BackendMessage {
	d := new(pgproto3.DataRow)
	for _, v := range values {
		if v == null {
			d.Values = append(d.Values, nil)
		} else {
			d.Values = append(d.Values, []byte(v))
		}
	}
	return d
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
