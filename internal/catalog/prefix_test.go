package catalog

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// A writer rejects the prefix whose messages no relay treats as rows. Package outbox imports no other package of this
// module, so it has its own constant, which must be the same.
func TestReservedPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{
		MessagePrefix: true,
		"":            false, "*": false, "outbox": false, "outbox-cdc-audit": false, "outbox-cdc prune": false, "Outbox-CDC": false,
	} {
		if _, err := outbox.NewWriter(outbox.Config{MessagePrefix: prefix}); (err != nil) != want {
			t.Errorf("a writer of messages with prefix %q: %v", prefix, err)
		}
	}
}
