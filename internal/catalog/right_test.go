package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// A role may create a publication of tables that it owns, with CREATE on the database.
func TestMayPublish(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	cfg := s.cfg.Conn.Copy()
	cfg.User = s.Role(t, "CREATE TABLE own (id int); ALTER TABLE own OWNER TO $ROLE")
	lacks := func(table, want string) {
		t.Helper()
		r := NewReader(cfg)
		defer r.Close(t.Context())
		err := r.MayPublish(t.Context(), []string{table})
		if right, denied := errors.AsType[*RightError](err); denied != (want != "") || denied && !strings.Contains(right.What, want) || !denied && err != nil {
			t.Errorf("table %s: %v, want %q", table, err, want)
		}
	}
	lacks("outbox", "does not own table")
	lacks("own", "lacks CREATE")
	s.Exec(t, "GRANT CREATE ON DATABASE "+s.Name+" TO "+cfg.User)
	lacks("own", "")
}

// A copy of a table that the role may not read creates no slot. The right on one column is enough to go on.
func TestCopyNeedsARightToRead(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	cfg := s.asRole(t)
	setup := SetupConfig{Conn: cfg.Conn, Publication: cfg.Publication, Slot: cfg.Slot + "_b", Tables: []string{"outbox"}}
	s.Exec(t, "REVOKE SELECT ON outbox FROM "+cfg.Conn.User)
	_, _, err := setupCopy(t.Context(), cfg, setup)
	want := `GRANT SELECT ON "public"."outbox" TO "` + cfg.Conn.User + `"`
	if _, ok := errors.AsType[*ReadError](err); !ok || !errors.Is(err, replication.ErrAccess) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if pgtest.QueryRow[bool](t, s.DB, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1)", setup.Slot) {
		t.Error("the slot was created")
	}
	s.Exec(t, "GRANT SELECT (id) ON outbox TO "+cfg.Conn.User)
	_, c, err := setupCopy(t.Context(), cfg, setup)
	if err != nil {
		t.Fatal(err)
	}
	c.Close(t.Context())
}

// A lost slot of a table without the columns for a refill has another instruction.
func TestLostSlotOfATableThatCannotBeRefilled(t *testing.T) {
	t.Parallel()
	s := newSource(t, pgtest.Server(t))
	s.Exec(t, "SELECT pg_drop_replication_slot($1)", s.Name)
	instructs := func(want string, byHand bool) {
		t.Helper()
		state, err := Inspect(t.Context(), s.cfg.Conn, "pub", s.Name, NewTables([]string{"outbox"}))
		if err != nil {
			t.Fatal(err)
		}
		err = state.Verify()
		if _, got := errors.AsType[*UnrefillableError](err); got != byHand || !errors.Is(err, replication.ErrSlotMissing) || !strings.Contains(err.Error(), want) || state.InstructRecover() != want {
			t.Errorf("%v, by hand: %t", err, got)
		}
	}
	instructs(InstructByHand, true)
	gap := errors.New("the slot was re-created")
	if err := (&State{Outboxes: []Outbox{{Parts: []Part{{Name: "own"}}}}}).ExplainGap(gap); !errors.Is(err, gap) || !strings.Contains(err.Error(), "replay --where") || strings.Contains(err.Error(), "setup") {
		t.Errorf("a gap: %v", err)
	}
	s.Exec(t, "ALTER TABLE outbox ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id(), ADD COLUMN position bigint NOT NULL GENERATED ALWAYS AS IDENTITY")
	instructs(InstructRecover, false)
}
