package catalog

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// A writer rejects a prefix whose messages no relay treats as rows. Package outbox imports no other package of this
// module, so it has its own list of prefixes, which must be the same.
func TestReservedPrefixes(t *testing.T) {
	for prefix, want := range map[string]bool{
		MessagePrefix: true, "outbox-cdc prune": true,
		"": false, "*": false, "outbox": false, "outbox-cdc-audit": false, "outbox-cdc prunes": false, "outbox-cdc ": false, "Outbox-CDC": false,
	} {
		if got := Reserved(prefix); got != want {
			t.Errorf("Reserved(%q) = %t", prefix, got)
		}
		if _, err := outbox.NewWriter(outbox.Config{MessagePrefix: prefix}); (err != nil) != want {
			t.Errorf("a writer of messages with prefix %q: %v", prefix, err)
		}
	}
}
