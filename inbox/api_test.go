package inbox_test

import (
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

// The Go code of docs/inbox.md compiles.
func TestPage(t *testing.T) {
	c := doctest.NewChecker(t, "context", "log/slog", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/IBM/sarama",
		"github.com/twmb/franz-go/pkg/kgo", "github.com/outbox-cdc/outbox-cdc/inbox", "github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz",
		"github.com/outbox-cdc/outbox-cdc/inbox/inboxsarama")
	page, err := os.ReadFile("../docs/inbox.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckPage(string(page), ""); err != nil {
		t.Error(err)
	}
}

func TestImports(t *testing.T) { apitest.Imports(t, "inbox") }
