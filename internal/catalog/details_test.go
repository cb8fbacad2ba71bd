package catalog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// TestReader: every statement runs on every version, and writes nothing.
func TestReader(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		db := pgtest.DatabaseOn(t, srv)
		db.Exec(t, `
			CREATE TABLE plain (id int PRIMARY KEY, body text, twice int GENERATED ALWAYS AS (id * 2) STORED);
			CREATE TABLE bare (id int);
			CREATE TABLE days (id int, day date) PARTITION BY RANGE (day);
			CREATE TABLE day1 PARTITION OF days FOR VALUES FROM ('2020-01-01') TO ('2020-01-02');
			CREATE PUBLICATION pub FOR TABLE plain, days`)
		s := NewReader(db.Config(t))
		defer s.Close(t.Context())

		server, err := s.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if server.MaxSlots != 50 || server.MaxSenders != 50 || server.WALBytes < 0 || server.WALTime <= 0 ||
			server.ClockAhead.Abs() > time.Minute || server.ClockTrip <= 0 {
			t.Errorf("server: %+v", server)
		}
		role, err := s.Role(t.Context())
		want := &RoleDetails{Name: "postgres", Superuser: true, Replication: true, Create: true, EmitsMessages: true}
		rest := cmpopts.IgnoreFields(RoleDetails{}, "EmitText", "OpenEmit") // they depend on the version; see TestMessagesOfARoleWithoutRights
		if diff := cmp.Diff(want, role, rest); err != nil || diff != "" {
			t.Errorf("%v, role:\n%s", err, diff)
		}
		if lines, known, err := s.HBAErrors(t.Context()); err != nil || !known || len(lines) > 0 {
			t.Errorf("pg_hba.conf: %q, %t, %v", lines, known, err)
		}
		if err := s.Walsender(t.Context()); err != nil {
			t.Error(err)
		}
		state, err := s.Inspect(t.Context(), "pub", "nobody", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name         string
			columns      int
			published    string
			unidentified []string
		}{
			{"plain", 2, "plain", nil},
			{"public.bare", 1, "", []string{"public.bare"}},
			{"days", 2, "day1", []string{"public.day1"}},
			{"day1", 2, "day1", []string{"public.day1"}},
		} {
			table, err := s.Table(t.Context(), tt.name, state.Publication)
			if err != nil {
				t.Fatal(err)
			}
			published := ""
			if table.Published != nil {
				published = table.Published.Name
			}
			if len(table.Columns) != tt.columns || published != tt.published || !table.Select || !table.Owner || !cmp.Equal(table.Unidentified, tt.unidentified, cmpopts.EquateEmpty()) {
				t.Errorf("%s: %+v, published by %q", tt.name, table, published)
			}
		}
		for _, name := range []string{"absent", "a b c"} {
			if table, err := s.Table(t.Context(), name, nil); err == nil || table != nil {
				t.Errorf("%s: %v, %v", name, table, err)
			}
		}
		if _, err := s.Inspect(t.Context(), "pub", "nobody", nil); err != nil {
			t.Errorf("after errors: %v", err)
		}
		if err := s.exec(t); err == nil {
			t.Error("the session may write")
		}
	})
}

// exec tries to write.
func (r *Reader) exec(t *testing.T) error {
	t.Helper()
	if err := r.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := r.conn.Exec(t.Context(), "CREATE TABLE written ()").ReadAll()
	return err
}
