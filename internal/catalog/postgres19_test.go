package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// An answer is the response to statements that contain a text.
type answer struct {
	to   string
	oids []uint32 // types of the columns
	row  []string
}

// OIDs of types, from pg_type.dat.
const (
	oidBool, oidInt8, oidInt4, oidText, oidOID, oidLSN, oidJSONB = 16, 20, 23, 25, 26, 3220, 3802
)

// serve answers prepared statements: with the first answer whose text they contain, otherwise with no row. It returns the
// statements when the client has disconnected.
func serve(s *walsender.Conn, answers []answer) (statements []string) {
	if s.Accept() != nil {
		return nil
	}
	for {
		m, err := s.Receive()
		if err != nil {
			return statements
		}
		switch m := m.(type) {
		case *pgproto3.Parse:
			statements = append(statements, m.Query)
		case *pgproto3.Sync:
			s.Send(&pgproto3.ParseComplete{})
			s.Send(&pgproto3.BindComplete{})
			sendAnswer(s, statements[len(statements)-1], answers)
			s.SendReady()
		}
	}
}

func sendAnswer(s *walsender.Conn, statement string, answers []answer) {
	for _, a := range answers {
		if !strings.Contains(statement, a.to) {
			continue
		}
		var description pgproto3.RowDescription
		var values pgproto3.DataRow
		for i, oid := range a.oids {
			description.Fields = append(description.Fields, pgproto3.FieldDescription{Name: fmt.Appendf(nil, "c%d", i), DataTypeOID: oid})
			values.Values = append(values.Values, []byte(a.row[i]))
		}
		s.Send(&description)
		s.Send(&values)
		s.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		return
	}
	s.Send(&pgproto3.RowDescription{})
	s.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
}

// postgres19 returns what a server of version 19 has, as far as Inspect reads it.
func postgres19(t *testing.T, walLevel, effective string, recovery bool) (*State, []string) {
	t.Helper()
	inRecovery := map[bool]string{false: "f", true: "t"}[recovery]
	answers := []answer{
		{
			"effective_wal_level",
			[]uint32{oidInt4, oidText, oidText, oidBool, oidText, oidText, oidText, oidLSN, oidInt8, oidInt8, oidJSONB},
			[]string{"190000", "7000000000000000001", "app", inRecovery, walLevel, effective, "UTF8", "0/1000", "-1", "0", `[{"name": "sb1", "active": false}, {"name": "sb2", "active": true}]`},
		},
		{
			"FROM pg_catalog.pg_publication p WHERE pubname",
			[]uint32{oidOID, oidInt8, oidOID, oidText, oidBool, oidBool, oidBool, oidBool, oidBool, oidBool, oidJSONB},
			[]string{"100", "700", "10", "pub", "t", "f", "f", "f", "t", "t", "{}"},
		},
		{
			"JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid\n		JOIN",
			[]uint32{oidOID, oidOID, oidText, oidText, oidBool, oidText, oidBool},
			[]string{"101", "16400", "public", "outbox", "t", "", "f"},
		},
	}
	cfg, err := pgconn.ParseConfig("host=db user=cdc sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	statements := make(chan []string, 1)
	cfg.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			statements <- serve(walsender.New(theirs), answers)
		}()
		return ours, nil
	}
	state, err := Inspect(t.Context(), cfg, "pub", "slot", nil)
	if err != nil {
		t.Fatal(err)
	}
	return state, <-statements
}

// TestPostgres19 uses a scripted server: there are no binaries of version 19 for the tests.
func TestPostgres19(t *testing.T) {
	for _, tt := range []struct {
		level, effective string
		recovery         bool
		decodes          bool
	}{
		{"logical", "logical", false, true},
		{"replica", "logical", false, true}, // there is a logical slot
		{"replica", "replica", false, true}, // the first one raises it
		{"minimal", "minimal", false, false},
		{"replica", "logical", true, true},  // as the primary
		{"replica", "replica", true, false}, // a standby cannot raise it
	} {
		state, statements := postgres19(t, tt.level, tt.effective, tt.recovery)
		if state.ServerVersion != 190000 || state.Decodes() != tt.decodes {
			t.Errorf("%+v: %+v", tt, state)
		}
		state.Slot = &Slot{Failover: true}
		if missing := state.MissingStandbys(); !slices.Equal(missing, []string{"sb1"}) {
			t.Errorf("the slot waits for %q", missing)
		}
		state.Slot.Failover = false
		if missing := state.MissingStandbys(); missing != nil {
			t.Errorf("a slot without failover waits for %q", missing)
		}
		state.Slot = nil
		rejected := errors.Is(state.verifyServer(), replication.ErrConfig)
		if rejected == tt.decodes {
			t.Errorf("%+v: %v", tt, state.verifyServer())
		}
		if all := strings.Join(statements, "\n"); !strings.Contains(all, "r.prexcept") || len(state.Publication.members) > 0 {
			t.Error("tables that the publication excludes count as members")
		}
		state.SlotName, state.Outboxes = "slot", []Outbox{{Configured: "outbox", Parts: []Part{{OID: 16400, Schema: "public", Name: "outbox", Kind: "p", Persistence: "p"}}}}
		err := state.VerifyOutboxes()
		if !errors.Is(err, replication.ErrPublication) || !strings.Contains(err.Error(), `ALTER PUBLICATION "pub" SET ALL TABLES`) {
			t.Errorf("an outbox that the publication excludes: %v", err)
		}
		state.Outboxes[0].Parts[0].OID++
		if err := state.VerifyOutboxes(); err != nil {
			t.Errorf("an outbox without partitions that it does not exclude: %v", err)
		}
		if d := state.definition(); d.publication != "100 700 101" {
			t.Errorf("a change of what the publication excludes is not noticed: %q", d.publication)
		}
	}
}

// TestBefore19: earlier versions have no effective_wal_level, and wal_level decides.
func TestBefore19(t *testing.T) {
	for level, decodes := range map[string]bool{"logical": true, "replica": false} {
		if c := (&State{ServerVersion: 180000, WALLevel: level}); c.Decodes() != decodes {
			t.Errorf("%s: %t", level, c.Decodes())
		}
	}
}
