package replication

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// hidesRows is the message of a server that would hide rows.
const hidesRows = `query would be affected by row-level security policy for table "outbox"`

// noLogin is the message of a server that does not let the role log in.
const noLogin = `role "cdc" is not permitted to log in`

// Every row of the table applies to an error. It gives the error exactly one cause, and its remedy.
func TestEveryCondition(t *testing.T) {
	reached := make(map[int]bool)
	for i, c := range conditions() {
		code := c.code + "ZZZZZ"[:5-len(c.code)] // for a class, a code without a row of its own
		for _, message := range []string{
			"no", "requested WAL segment X has already been removed", `could not open file "f"`, "invalid memory alloc request size 1",
			"unsupported startup parameter: replication", `syntax error at or near "IDENTIFY_SYSTEM"`, "PAM authentication failed", hidesRows, noLogin,
		} {
			for _, at := range []phase{connecting, querying, starting, between, inside} {
				reported := &pgconn.PgError{Severity: "ERROR", Code: code, Message: message}
				reported.Routine = map[string]string{hidesRows: "check_enable_rls", noLogin: "InitializeSessionUserId"}[message]
				if met := conditionOf(reported, at); met.code != c.code || met.during != c.during || met.remedy != c.remedy || (met.fits == nil) != (c.fits == nil) {
					continue // the row does not apply
				}
				reached[i] = true
				err := serverError("doing it", reported, at)
				for _, id := range identities {
					if errors.Is(err, id) != errors.Is(c.is, id) {
						t.Errorf("%s in phase %d: %v, want %q and nothing else", code, at, err, c.is)
					}
				}
				if text := err.Error(); !strings.Contains(text, "doing it: ERROR: "+message+" (SQLSTATE "+code+")") || !strings.HasSuffix(text, c.remedy) {
					t.Errorf("%s in phase %d: %v, want it to end with the remedy %q", code, at, err, c.remedy)
				}
			}
		}
		if !reached[i] {
			t.Errorf("row %d of the table (%s) never applies", i, c.code)
		}
	}
	for _, code := range []string{"55000", "58P01", "XX000", "XX001", "", "X"} {
		for _, id := range identities {
			if err := serverError("doing it", &pgconn.PgError{Code: code}, inside); errors.Is(err, id) {
				t.Errorf("%q: %v, want an error without a known cause", code, err)
			}
		}
	}
}

// The client recognizes removed WAL by the name of the server function, so it works for messages in any language.
func TestWALRemovedInAnyLanguage(t *testing.T) {
	for _, routine := range []string{"WalSndSegmentOpen", "CheckXLogRemoved"} {
		err := serverError("stream", &pgconn.PgError{Code: undefinedFile, Message: "das angeforderte WAL-Segment 2 wurde schon entfernt", Routine: routine}, between)
		if !errors.Is(err, ErrWALRemoved) {
			t.Errorf("%s: %v", routine, err)
		}
	}
	unreadable := &pgconn.PgError{Code: "58030", Message: `could not open file "pg_wal/2": Input/output error`, Routine: "WalSndSegmentOpen"}
	if err := serverError("stream", unreadable, between); errors.Is(err, ErrWALRemoved) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

// If the server rejects an option, the error is an ErrConfig.
func TestOptionsRefusedByServer(t *testing.T) {
	t.Parallel()
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		s := newSource(t, srv)
		for says, options := range map[string]string{"proto_version": "proto_version '9'", "colour": "proto_version '1', colour 'red'"} {
			stream, err := Open(t.Context(), s.cfg, discard())
			if err != nil {
				t.Fatal(err)
			}
			refused, err := stream.start("start", "START_REPLICATION SLOT "+s.cfg.Slot+" LOGICAL 0/0 ("+options+", publication_names 'pub')")
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(refused, ErrConfig) || !strings.Contains(refused.Error(), says) {
				t.Errorf("%s: %v", options, refused)
			}
			if err := stream.Close(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
	})
}

// A server that ends the connection right after the login, because it crashes, is unreachable.
func TestConnectionLostAfterTheLogin(t *testing.T) {
	t.Parallel()
	cfg := Ordinary(pgtest.Database(t).Config(t))
	settings := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if err := c.Close(ctx); err != nil {
			return err
		}
		return settings(ctx, c)
	}
	if _, err := Connect(t.Context(), cfg); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrAccess) {
		t.Errorf("Connect: %v", err)
	}
}

// The error of a refused login says where its password comes from, and of one with an IAM token, which Postgres hands to PAM,
// what RDS requires.
func TestRefusedLogins(t *testing.T) {
	for want, refusal := range map[string]*pgproto3.ErrorResponse{
		"source.password_command":          {Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "cdc"`},
		"GRANT rds_iam TO …":               {Severity: "FATAL", Code: "28000", Message: `PAM authentication failed for user "cdc"`},
		"let it log in: ALTER ROLE":        {Severity: "FATAL", Code: "28000", Message: `role "cdc" is not permitted to log in`, Routine: "InitializeSessionUserId"},
		"pg_hba.conf needs a line for thi": {Severity: "FATAL", Code: "28000", Message: `no pg_hba.conf entry for host "10.0.0.1"`},
	} {
		if _, err := Connect(t.Context(), refuser(t, "db", refusal)); !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", refusal.Message, err, want)
		}
	}
}
