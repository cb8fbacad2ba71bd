package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Every row of the table is reached, and gives an error its identity, no other, and its remedy.
func TestEveryCondition(t *testing.T) {
	for _, c := range conditions() {
		code := c.code + "ZZZ"[:5-len(c.code)] // of a class, one that is not in the table by itself
		for _, at := range []phase{connecting, querying, starting, streaming} {
			if c.during&at == 0 || c.code == insufficientPrivilege && c.remedy == "" && at&(connecting|querying) != 0 {
				continue // the row is for the other phases
			}
			err := serverError("doing it", &pgconn.PgError{Severity: "ERROR", Code: code, Message: "no"}, at)
			for _, id := range identities {
				if errors.Is(err, id) != errors.Is(c.is, id) {
					t.Errorf("%s in phase %d: %v, want %q and nothing else", code, at, err, c.is)
				}
			}
			if text := err.Error(); !strings.Contains(text, "doing it: ERROR: no (SQLSTATE "+code+")") || !strings.HasSuffix(text, c.remedy) {
				t.Errorf("%s in phase %d: %v, want the remedy %q at its end", code, at, err, c.remedy)
			}
		}
	}
	for _, code := range []string{"55000", "58P01", "", "X"} {
		for _, id := range identities {
			if err := serverError("doing it", &pgconn.PgError{Code: code}, streaming); errors.Is(err, id) {
				t.Errorf("%q: %v, which is known to nobody", code, err)
			}
		}
	}
}

// Options that we never send are refused as a setting of ours.
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
