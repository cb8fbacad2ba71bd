package catalog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Inspect finds the oldest transaction that has written something, open or prepared, in any database. A role with
// only REPLICATION sees its owner, but not its age.
func TestOldestTransaction(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, shared *pgserver.Server) {
		t.Parallel()
		srv := pgtest.Start(t, pgserver.Config{BinDir: shared.Install().BinDir}) // no other test writes to it
		s := newSource(t, srv)
		other := pgtest.DatabaseOn(t, srv)
		other.Exec(t, "CREATE TABLE t (i int)")
		look := func() *OpenTransaction {
			t.Helper()
			state, err := Inspect(t.Context(), s.cfg.Conn, s.cfg.Publication, s.cfg.Slot, nil)
			if err != nil {
				t.Fatal(err)
			}
			return state.Oldest
		}
		expect := func(what string, want *OpenTransaction) {
			t.Helper()
			got := look()
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(OpenTransaction{}, "XID", "Age")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			if got != nil && (got.XID == 0 || (got.Age > 0) != (want.State != "" || want.PID == 0) || got.Age > time.Minute) {
				t.Errorf("%s: %+v", what, got)
			}
		}

		reader, writer, younger := other.Conn(t), other.Conn(t), s.Conn(t)
		run := func(sql string) {
			t.Helper()
			if _, err := writer.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reader.Exec(t.Context(), "BEGIN; SELECT * FROM t"); err != nil {
			t.Fatal(err)
		}
		expect("only a reader", nil)
		run("SET application_name = 'billing'; BEGIN; INSERT INTO t VALUES (1)")
		if _, err := younger.Exec(t.Context(), "BEGIN; INSERT INTO outbox VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		open := &OpenTransaction{PID: int32(writer.PgConn().PID()), User: "postgres", Database: other.Name, Application: "billing", State: "idle in transaction"}
		expect("open", open)
		run("PREPARE TRANSACTION 'it''s forgotten'")
		prepared := &OpenTransaction{GID: "it's forgotten", User: "postgres", Database: other.Name}
		expect("prepared", prepared)

		s.leastPrivileged(t)
		expect("prepared, as seen by a role without privileges", prepared)
		run("ROLLBACK PREPARED 'it''s forgotten'")
		run("BEGIN; INSERT INTO t VALUES (1)")
		if _, err := younger.Exec(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		open.State = ""
		expect("open, as seen by a role without privileges", open)
	})
}

// The watcher warns of a long transaction once in each of its states, with the statement that ends it. It also logs
// the end of the transaction.
func TestOpenForLong(t *testing.T) {
	running := func(xid uint32, age time.Duration) *OpenTransaction {
		return &OpenTransaction{XID: xid, PID: 4711, User: "app", Database: "app", Application: "billing", State: "idle in transaction", Age: age}
	}
	prepared := func(xid uint32) *OpenTransaction {
		return &OpenTransaction{XID: xid, GID: "it's forgotten", User: "app", Database: "app", Age: time.Second}
	}
	unseen := func(xid uint32) *OpenTransaction {
		return &OpenTransaction{XID: xid, PID: 4711, User: "app", Database: "app"}
	}
	const over = "over: it has ended"
	for name, tc := range map[string]struct {
		patience time.Duration
		looks    []*OpenTransaction // 10 s apart
		want     []string           // a warning for each look; empty: none
	}{
		"short ones": {looks: []*OpenTransaction{running(1, time.Second), running(2, time.Second), nil, running(3, 299*time.Second)}, want: []string{"", "", "", ""}},
		"a long one": {
			looks: []*OpenTransaction{running(1, 299*time.Second), running(1, 309*time.Second), running(1, 319*time.Second), nil, nil},
			want: []string{
				"",
				`it has been open for 5m9s (user "app", database "app", application "billing", idle in transaction): ` +
					`until it ends, slot "slot" retains the WAL from 0/FF0000 on, now 1.1 MB, which Postgres decodes again after every reconnect; ` +
					"wait until it ends, or end it with: SELECT pg_terminate_backend(4711)",
				"", over, "",
			},
		},
		"found at the start": {looks: []*OpenTransaction{running(1, 49*time.Hour)}, want: []string{"open for 49h"}},
		"one after the other": {
			looks: []*OpenTransaction{running(1, time.Hour), running(2, time.Hour), running(3, time.Second), running(3, time.Hour)},
			want:  []string{"open for 1h", over + ";it has been open", over, "open for 1h"},
		},
		"prepared": {
			patience: 15 * time.Second,
			looks:    []*OpenTransaction{running(1, time.Second), running(1, 11*time.Second), running(1, 21*time.Second), prepared(1), prepared(1), nil},
			want:     []string{"", "", "open for 21s", "open for 30s (user \"app\", database \"app\"): ", "", over},
		},
		"the statement that ends a prepared one": {
			patience: time.Second, looks: []*OpenTransaction{prepared(1)},
			want: []string{"COMMIT PREPARED 'it''s forgotten' or ROLLBACK PREPARED 'it''s forgotten'"},
		},
		"since when is not to be seen": {
			patience: 15 * time.Second, looks: []*OpenTransaction{unseen(1), unseen(1), unseen(1), unseen(1)}, want: []string{"", "", "open for 20s", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := History{LongTransaction: tc.patience}
			for i, transaction := range tc.looks {
				c := look(i)
				c.Oldest = transaction
				c.Slot.RestartLSN = look(0).Slot.RestartLSN
				warnings, err := h.Look(c)
				if err != nil {
					t.Fatal(err)
				}
				if got := warningTexts(warnings); (got == "") != (tc.want[i] == "") || !containsAll(got, tc.want[i]) {
					t.Errorf("look %d: %q, want %q", i, got, tc.want[i])
				}
			}
		})
	}
}

// warningTexts returns the texts of warnings.
func warningTexts(warnings []Warning) string {
	var all []string
	for _, w := range warnings {
		if w.Over {
			w.Text = "over: " + w.Text
		}
		all = append(all, w.Text)
	}
	return strings.Join(all, ";")
}

func containsAll(got, want string) bool {
	for part := range strings.SplitSeq(want, ";") {
		if !strings.Contains(got, part) {
			return false
		}
	}
	return true
}

// The object of a warning names the transaction.
func TestTransactionObject(t *testing.T) {
	got := fmt.Sprint((&OpenTransaction{PID: 7}).object(), ", ", (&OpenTransaction{GID: `a"b`}).object())
	if want := `transaction of process 7, prepared transaction "a\"b"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
