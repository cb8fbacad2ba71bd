package audit

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// JetStream does not keep the order of headers.
func TestFingerprintOfHeaders(t *testing.T) {
	var h hasher
	of := func(headers ...sink.Header) fingerprint {
		f, _ := h.take(&sink.Record{Topic: "orders", Headers: headers}, 0)
		return f
	}
	id, kind := sink.Header{Key: "id", Value: []byte("1")}, sink.Header{Key: "eventType", Value: []byte("T")}
	want := of(id, kind)
	if differs := want.compare(of(kind, id)); differs != 0 {
		t.Errorf("in another order: %s", damage(differs))
	}
	for name, got := range map[string]fingerprint{
		"one is missing":  of(id),
		"one is repeated": of(id, kind, kind),
		"a null value":    of(id, sink.Header{Key: "eventType"}),
		"another name":    of(id, sink.Header{Key: "type", Value: []byte("T")}),
	} {
		if differs := want.compare(got); differs != headersDiffer {
			t.Errorf("%s: %s", name, damage(differs))
		}
	}
}

func TestLSNOfAHeader(t *testing.T) {
	for text, want := range map[string]uint64{"0/1A:0": 0x1A, "2/1A:1000": 0x20000001A, "2/0000001A": 0x20000001A, "": 0, "7": 0, "x/1": 0, "1/x": 0} {
		if got := parseLSN(text); got != want {
			t.Errorf("%q: %X", text, got)
		}
	}
}
