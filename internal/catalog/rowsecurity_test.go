package catalog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// asRole returns the configuration of s for a new role with SELECT on the outbox.
func (s *source) asRole(t *testing.T) replication.Config {
	t.Helper()
	cfg := s.cfg
	cfg.Conn = cfg.Conn.Copy()
	cfg.Conn.User = s.Role(t, "ALTER ROLE $ROLE REPLICATION; GRANT CREATE ON DATABASE $ROLE TO $ROLE; GRANT SELECT ON outbox TO $ROLE")
	return cfg
}

// Everything that reads rows of a table returns an error that names the policies, if these hide rows. It then has changed
// nothing. A role with BYPASSRLS reads all rows.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Parallel()
		s := newSource(t, srv)
		s.Exec(t, `ALTER TABLE outbox ADD COLUMN xid xid8 DEFAULT pg_current_xact_id(), ADD COLUMN position bigint GENERATED ALWAYS AS IDENTITY`)
		s.Exec(t, `INSERT INTO outbox SELECT i FROM generate_series(1, 5) i; ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
			CREATE POLICY "one tenant" ON outbox USING (id = 1); CREATE POLICY another ON outbox USING (id = 2)`)
		cfg := s.asRole(t)
		ctx := t.Context()
		missing, slot := Missing{Delivered: "1:1:"}, s.inspect(t).Slot
		reads := map[string]func() error{
			"rows": func() error {
				r, err := Select(ctx, cfg, Selection{Table: "outbox", ID: []string{"id"}, Order: []string{"position"}})
				if err == nil {
					r.Close(ctx)
				}
				return err
			},
			"last rows": func() error { _, _, err := LastRows(ctx, cfg, "outbox", 3); return err },
			"missing rows": func() error {
				c, err := OpenMissing(ctx, cfg, []string{"outbox"}, missing)
				if err == nil {
					c.Close(ctx)
				}
				return err
			},
			"initial copy": func() error {
				other := SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot + "_b", Tables: []string{"outbox"}}
				_, c, err := setupCopy(ctx, cfg, other)
				if err == nil {
					c.Close(ctx)
				}
				return err
			},
			"refill": func() error {
				lock, err := LockSlot(ctx, SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot, Tables: []string{"outbox"}})
				if err != nil {
					return err
				}
				defer lock.Close(ctx)
				c, err := lock.RecreateSlot(ctx, cfg, slot, missing, nil)
				if err == nil {
					c.Close(ctx)
				}
				return err
			},
		}
		for name, read := range reads {
			err := read()
			hidden, ok := errors.AsType[*HiddenError](err)
			if !ok || !errors.Is(err, replication.ErrAccess) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			want := &HiddenError{Table: "public.outbox", Policies: []string{"another", "one tenant"}, Role: s.Name}
			if diff := cmp.Diff(want, hidden); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		const says = `source denies access: row-level security of table public.outbox hides rows from role "%s" (policies: another, one tenant):` +
			` ALTER ROLE "%[1]s" BYPASSRLS; or connect as the owner of the table`
		if got, want := reads["rows"]().Error(), fmt.Sprintf(says, s.Name); got != want {
			t.Errorf("error\n%s, want\n%s", got, want)
		}
		if got := s.inspect(t).Slot; got == nil || got.ConfirmedFlushLSN != slot.ConfirmedFlushLSN {
			t.Errorf("the slot is %v", got)
		}
		if n := pgtest.QueryRow[int](t, s.DB, "SELECT count(*)::int FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot+"_b"); n != 0 {
			t.Error("a slot was created although its copy cannot be read")
		}
		s.Exec(t, fmt.Sprintf("ALTER ROLE %s BYPASSRLS", s.Name))
		for name, read := range reads {
			if err := read(); err != nil && !errors.Is(err, ErrRefill) {
				t.Errorf("%s with BYPASSRLS: %v", name, err)
			}
		}
		s.Exec(t, "SELECT pg_drop_replication_slot($1)", cfg.Slot+"_b")
	})
}

// The owner sees every row, unless the table has FORCE ROW LEVEL SECURITY. Policies of a partition count where the
// partition is read by itself. A Reader reports all of them.
func TestRowSecurityOfTheOwner(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	cfg := s.asRole(t)
	s.Exec(t, fmt.Sprintf(`CREATE TABLE parted (id int) PARTITION BY LIST (id); CREATE TABLE one PARTITION OF parted FOR VALUES IN (1);
		ALTER TABLE outbox ENABLE ROW LEVEL SECURITY; ALTER TABLE outbox OWNER TO %s; ALTER TABLE one ENABLE ROW LEVEL SECURITY; GRANT SELECT ON parted, one TO %[1]s`, s.Name))
	conn, err := replication.Connect(t.Context(), replication.Ordinary(cfg.Conn))
	if err != nil {
		t.Fatal(err)
	}
	defer replication.Disconnect(context.WithoutCancel(t.Context()), conn)
	hidden := func(name string) string {
		err := VerifyNamedRows(t.Context(), conn, "nowhere", name)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if got := hidden("outbox"); got != "" {
		t.Errorf("the owner: %s", got)
	}
	s.Exec(t, "ALTER TABLE outbox FORCE ROW LEVEL SECURITY")
	want := fmt.Sprintf(`source denies access: row-level security of table public.outbox hides rows from role "%s" (it has no policy, so every row is hidden):`+
		` ALTER TABLE public.outbox NO FORCE ROW LEVEL SECURITY; or ALTER ROLE "%[1]s" BYPASSRLS`, s.Name)
	if got := hidden("outbox"); got != want {
		t.Errorf("FORCE: %s, want %s", got, want)
	}
	if got := hidden("parted"); got != "" {
		t.Errorf("a partitioned table: %s", got)
	}
	if _, _, err := LastRows(t.Context(), cfg, "parted", 1); !errors.Is(err, replication.ErrAccess) {
		t.Errorf("the last rows of partitions: %v", err)
	}
	reader := NewReader(cfg.Conn)
	defer reader.Close(context.WithoutCancel(t.Context()))
	for name, want := range map[string]string{"outbox": "public.outbox", "parted": "public.one"} {
		table, err := reader.Table(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if table.Hidden == nil || table.Hidden.Table != want {
			t.Errorf("%s: %v", name, table.Hidden)
		}
	}
}
