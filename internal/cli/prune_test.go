package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/prune"
)

// Prune warns of the keys that the relay of its slot has parked. A server that is another relay's, or none, is no error.
func TestPruneWarnsOfParkedKeys(t *testing.T) {
	t.Parallel()
	const (
		none = `{"state": "streaming", "slot": {"name": "outbox_cdc"}, "parked": {"number": 0, "oldest": 0, "keys": []}}`
		one  = `{"state": "streaming", "slot": {"name": "outbox_cdc"}, "parked": {"number": 1, "oldest": 120, "keys": [{"id": "a1", "fix": "outbox-cdc dead-letter release --id a1"}]}}`
		two  = `{"state": "streaming", "slot": {"name": "outbox_cdc"}, "parked": {"number": 2, "oldest": 120, "keys": [{"id": "a1", "fix": "outbox-cdc dead-letter release --id a1"}, {}]}}`
		cut  = `{"state": "streaming", "slot": {"name": "outbox_cdc"}, "parked": {"number": 2, "oldest": 120, "keys": [{}, {"id": "a1", "truncated": true, "fix": "outbox-cdc dead-letter release --id a1"}]}}`
	)
	const copies = "Records of parked keys count as delivered: once prune has deleted the rows, "
	for name, tc := range map[string]struct{ status, slot, want string }{
		"no key":        {none, "outbox_cdc", ""},
		"a key":         {one, "outbox_cdc", "1 key parked, the first one for 2 min. " + copies + "the dead-letter topic has the only copy. "},
		"two keys":      {two, "outbox_cdc", "2 keys parked, the first one for 2 min. " + copies + "the dead-letter topic has the only copy. "},
		"truncated":     {cut, "outbox_cdc", "2 keys parked, the first one for 2 min. " + copies + "no copy is left of a row whose dead letter is truncated"},
		"another relay": {one, "orders", ""},
		"no relay":      {`{}`, "outbox_cdc", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.status) }))
		got := parkedWarning(t.Context(), server.URL, tc.slot)
		if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) || got != "" && !strings.HasSuffix(got, "To release key a1: outbox-cdc dead-letter release --id a1") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		server.Close()
	}
	for _, address := range []string{"", ":", "127.0.0.1:1"} {
		if got := parkedWarning(t.Context(), address, "outbox_cdc"); got != "" {
			t.Errorf("without a server at %q: %q", address, got)
		}
	}
}

// Rows of a table with partitions by age stay until their partition is old enough: prune does not say that there are none.
func TestPrunePrintsWhyRowsStay(t *testing.T) {
	t.Parallel()
	for want, table := range map[string]prune.Table{
		"o: no rows from before 0001-01-01T00:00:00Z were deleted\n":                                                         {Name: "o"},
		"o: no partition ended before 0001-01-01T00:00:00Z: a partition is dropped as a whole, with its rows, when it has\n": {Name: "o", Whole: true},
		"o: partition p dropped (8 kB)\no: 0 rows from before 0001-01-01T00:00:00Z deleted; delivered up to 0/1\n":           {Name: "o", Whole: true, Confirmed: "0/1", Dropped: []prune.Partition{{Name: "p", Size: "8 kB"}}},
	} {
		var out strings.Builder
		printPruned(&out, prune.Report{Tables: []prune.Table{table}}, false)
		if out.String() != want {
			t.Errorf("%+v: printed %q, want %q", table, out.String(), want)
		}
	}
}
