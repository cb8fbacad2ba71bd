package inbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

// The Go code of docs/inbox.md compiles.
func TestPage(t *testing.T) {
	c := doctest.NewChecker(t, "context", "log/slog", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/IBM/sarama",
		"github.com/twmb/franz-go/pkg/kgo", "github.com/outbox-cdc/outbox-cdc/inbox", "github.com/outbox-cdc/outbox-cdc/inbox/inboxfranz",
		"github.com/outbox-cdc/outbox-cdc/inbox/inboxsarama", "github.com/nats-io/nats.go/jetstream", "github.com/rabbitmq/amqp091-go",
		"github.com/redis/go-redis/v9", "github.com/outbox-cdc/outbox-cdc/inbox/inboxnats", "github.com/outbox-cdc/outbox-cdc/inbox/inboxrabbit",
		"github.com/outbox-cdc/outbox-cdc/inbox/inboxredis")
	page, err := os.ReadFile("../docs/inbox.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckPage(string(page), ""); err != nil {
		t.Error(err)
	}
}

// The consumer in docs/sqs.md compiles.
func TestPageOfSQS(t *testing.T) {
	c := doctest.NewChecker(t, "context", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
		"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/outbox-cdc/outbox-cdc/inbox")
	page, err := os.ReadFile("../docs/sqs.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CheckPage(string(page), ""); err != nil {
		t.Error(err)
	}
}

// docs/inbox-reference.md has all log messages, and no others.
func TestLogMessages(t *testing.T) {
	message := regexp.MustCompile("\\b(?:(Info|Warn)(?:Context\\(ctx|Context\\(session.Context\\(\\)|\\()|LogAttrs\\(ctx, slog.Level(Info|Warn|Error)),? ?\"(inbox: [^\"]+)\"")
	logged := make(map[string]bool)
	for _, pattern := range []string{"*.go", "inbox*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range message.FindAllStringSubmatch(string(code), -1) {
				logged[fmt.Sprintf("| %s | `%s` |", strings.ToUpper(m[1]+m[2]), m[3])] = true
			}
		}
	}
	page, err := os.ReadFile("../docs/inbox-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]bool)
	for _, row := range regexp.MustCompile("(?m)^\\| [A-Z]+ \\| `[^`]+` \\|").FindAllString(string(page), -1) {
		listed[row] = true
	}
	if diff := cmp.Diff(logged, listed); diff != "" {
		t.Errorf("docs/inbox-reference.md (-logged +listed):\n%s", diff)
	}
}

func TestImports(t *testing.T) { apitest.Imports(t, "inbox") }
