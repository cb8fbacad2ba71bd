package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/audit"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// An audit through a pooler fails as every other command does.
func TestAuditThroughAPooler(t *testing.T) {
	cfg, err := config.Load(config.Sources{File: "a.yaml", Content: []byte("source: {dsn: host=localhost}\nsink: {kafka: {brokers: ['localhost:9092']}}\n")})
	if err != nil {
		t.Fatal(err)
	}
	r := new(auditing)
	if r.cfg.Relay, err = cfg.Sending(); err != nil {
		t.Fatal(err)
	}
	refused := fmt.Errorf("%w: %w", replication.ErrConfig, &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"})
	if f := r.failed(t.Context(), refused); f.Exit != exit.Source || !strings.Contains(f.Next, "docs/clouds.md#poolers") {
		t.Errorf("exit code %d, next: %s", f.Exit, f.Next)
	}
}

// An audit lists the first differences of each kind, and says how many it leaves out.
func TestAuditSaysHowManyAreNotListed(t *testing.T) {
	var out strings.Builder
	printAudit(&out, &audit.Report{
		Topics:   []audit.Topic{{Name: "orders", Missing: 3, Altered: 1}},
		Findings: []audit.Finding{{Kind: audit.Missing, Topic: "orders"}, {Kind: audit.Altered, Topic: "orders"}},
	}, catalog.Terms{})
	if !strings.Contains(out.String(), "\nmissing: 2 more are not listed; --missing lists more\n") || strings.Contains(out.String(), "altered: 0") {
		t.Error(out.String())
	}
}
