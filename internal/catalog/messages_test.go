package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A role without any rights writes messages with the relay's prefix that exceed the limit for rows, inside and
// outside of a transaction. The stream continues after them. Role lists all grants that allow this. After they are
// revoked, the role cannot write messages, and the relay still can.
func TestMessagesOfARoleWithoutRights(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		nobody := "nobody_" + s.Name
		s.Exec(t, "CREATE ROLE "+nobody+" LOGIN")
		s.leastPrivileged(t)
		s.cfg.MessagePrefix, s.cfg.ReservedPrefix, s.cfg.MaxMessageBytes = MessagePrefix, MessagePrefix, 1<<20
		stream := s.start(t)
		hostile, err := pgx.Connect(t.Context(), strings.Replace(s.DSN, "//postgres@", "//"+nobody+"@", 1))
		if err != nil {
			t.Fatal(err)
		}
		defer hostile.Close(t.Context())
		emit := func(transactional bool, prefix string, megabytes int) error {
			_, err := hostile.Exec(t.Context(), "SELECT pg_logical_emit_message($1, $2, repeat('x', $3::int << 20))", transactional, prefix, megabytes)
			return err
		}
		for _, transactional := range []bool{true, false} {
			if err := emit(transactional, MessagePrefix, 2); err != nil {
				t.Fatal(err)
			}
		}
		s.Exec(t, "INSERT INTO outbox VALUES (1)")
		if kinds, _ := readUntil(t, stream, 1); strings.Contains(strings.Join(kinds, ""), "M") {
			t.Errorf("the stream has %v", kinds)
		}

		reader := NewReader(s.cfg.Conn)
		defer reader.Close(t.Context())
		role, err := reader.Role(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		flush := "" // from Postgres 17 on there is another argument
		if srv.Install().Major >= 17 {
			flush = ", boolean"
		}
		form := func(content string) string {
			return "pg_catalog.pg_logical_emit_message(boolean, text, " + content + flush + ")"
		}
		if !slices.Equal(role.OpenEmit, []string{form("bytea"), form("text")}) || !role.EmitsMessages || role.EmitText != form("text") {
			t.Fatalf("%+v", role)
		}
		s.Exec(t, "REVOKE EXECUTE ON FUNCTION "+strings.Join(role.OpenEmit, ", ")+" FROM PUBLIC")
		if err := emit(true, "p", 0); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("a message of a role without the right: %v", err)
		}
		if role, err = reader.Role(t.Context()); err != nil || len(role.OpenEmit) > 0 || role.EmitsMessages {
			t.Errorf("%+v, %v", role, err)
		}
		s.Exec(t, "GRANT EXECUTE ON FUNCTION "+role.EmitText+" TO "+replication.QuoteIdent(role.Name))
		o := Observe(s.cfg, nil)
		defer o.Close(t.Context())
		if _, err := o.Inspect(t.Context()); err != nil {
			t.Error(err)
		}
		if changed, err := o.EmitSnapshot(t.Context(), "nonce"); changed || err != nil {
			t.Error(changed, err)
		}
	})
}
