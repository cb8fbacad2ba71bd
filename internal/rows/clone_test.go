package rows

import (
	"testing"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The names of headers belong to a Router like all other bytes of a record.
func TestCloneCopiesHeaderNames(t *testing.T) {
	buffer := []byte("tx")
	rec := Clone(sink.Record{Headers: []sink.Header{{Key: unsafe.String(&buffer[0], len(buffer)), Value: buffer}}})
	copy(buffer, "??")
	if h := rec.Headers[0]; h.Key != "tx" || string(h.Value) != "tx" {
		t.Errorf("the clone has the header %q: %q", h.Key, h.Value)
	}
}
