package webhook

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

const page = "../../docs/webhook.md"

// TestPage compiles the receiver of docs/webhook.md, and compares the table of responses with the code.
func TestPage(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	c := doctest.NewChecker(t, "crypto/hmac", "crypto/sha256", "encoding/base64", "fmt", "io", "log", "net/http", "os", "slices", "strings")
	if err := c.CheckPage(string(content), "()"); err != nil {
		t.Error(err)
	}

	means := map[class]string{accepted: "acknowledges", missing: "waits", denied: "waits", retriable: "sends the event again", rejected: "rejects the record"}
	found := make(map[int]string)
	number := regexp.MustCompile(`\b[1-5]\d\d\b`)
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, code := range number.FindAllString(cells[1], -1) {
			n, _ := strconv.Atoi(code)
			found[n] = cells[2]
		}
	}
	for _, row := range statusTable() {
		if row.code != 0 && row.code != 503 && !strings.Contains(found[row.code], means[row.class]) {
			t.Errorf("%d: the page says %q, not %q", row.code, found[row.code], means[row.class])
		}
	}
	for code, says := range found {
		if !strings.Contains(says, means[lookup(code).class]) {
			t.Errorf("%d: the page says %q", code, says)
		}
	}
}
