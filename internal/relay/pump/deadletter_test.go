package pump

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Each key that is parked is logged once, without the key, however many of its records follow.
func TestParkedKeysAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	set := parking.NewSet(10)
	d := NewDeadLetters(DeadLetterConfig{Topic: "dead", Slot: "s", Parked: set, Log: slog.New(slog.NewTextHandler(&out, nil))})
	record := func(key string) *sink.Record { return &sink.Record{Topic: "orders", Key: []byte(key)} }
	logs := func(want string) {
		t.Helper()
		out.Reset()
		d.logOnce(t.Context())
		_, got, _ := strings.Cut(out.String(), `msg="keys parked`)
		if !strings.Contains(got, want) || want == "" && got != "" || strings.Contains(got, "secret") {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for i, key := range []string{"secret 1", "secret 2"} {
		o := encode.Origin{Tx: encode.Tx{CommitLSN: 7}, Index: i}
		if d.replaceRecord(o.Tx, i, record(key), &sink.RecordError{Topic: "orders", TooLarge: true, Size: 2, Limit: 1}) == nil {
			t.Fatal("the relay would stop")
		}
	}
	newest := set.List()[1]
	logs(`number=2 topic=orders newest="` + newest.Reason + `" fix="fix the cause, then outbox-cdc dead-letter release --id ` + newest.ShortID() + `"`)
	if d.follow(record("secret 2"), encode.Origin{Tx: encode.Tx{CommitLSN: 8}}) == nil {
		t.Fatal("a record overtakes a parked one")
	}
	logs("")
}
