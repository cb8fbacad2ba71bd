package runbook

import (
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/snippet"
)

// The Go code of docs/pattern.md is what it looks like.
func TestPattern(t *testing.T) {
	t.Parallel()
	c := snippet.New(t, "context", "database/sql", "errors", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
		"github.com/outbox-cdc/outbox-cdc/inbox", "github.com/outbox-cdc/outbox-cdc/outbox")
	page, err := os.ReadFile("../../docs/pattern.md")
	rig.Must(t, err)
	if err := c.CheckPage(string(page), "(ctx context.Context, tx pgx.Tx, p OrderPaid, e outbox.Event) error"); err != nil {
		t.Error(err)
	}
}
