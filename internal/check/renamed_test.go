package check

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A relay that streams goes on with a table that is renamed, and the next start ends: check says both, and what it says to do loses
// no row.
func TestRenamedTable(t *testing.T) {
	t.Parallel()
	r, _, broker := beside(t)
	insert := func(table string) {
		t.Helper()
		r.db.Exec(t, `INSERT INTO `+table+` (aggregatetype, aggregateid, type, payload) VALUES ('order', 'o-1', 'created', '{}')`)
	}
	stop := r.stream(t)
	insert("outbox")
	r.db.Exec(t, `ALTER TABLE outbox RENAME TO events`)
	insert("events")
	broker.ReadN(t, 2, r.topic)
	for _, c := range Run(t.Context(), r.config(t)) {
		if strings.Contains(c.Found, "skips") || strings.Contains(c.Found, "not relayed") {
			t.Errorf("the relay delivers the rows, but: %+v", c)
		}
		if c.Name != "table" {
			continue
		}
		for _, want := range []string{"still delivers its rows", "exit code 13"} {
			if c.State != Failed || !strings.Contains(c.Found, want) {
				t.Errorf("%+v, want %q", c, want)
			}
		}
		if want := `"public"."events": if the table is there under a new name, set outbox.tables`; !strings.Contains(c.Fix, want) || strings.Index(c.Fix, "migrate") < strings.Index(c.Fix, want) {
			t.Errorf("%+v, want %q", c, want)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	insert("events")
	if err := start(t, r.config(t).Relay, true); fault.ExitCode(err) != exit.NoDelivery || !strings.Contains(err.Error(), "set outbox.tables") {
		t.Errorf("the next start: %v", err)
	}
	r.set("outbox.tables", "events")
	stop = r.stream(t)
	insert("events")
	broker.ReadN(t, 4, r.topic)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// stream runs a relay until stop is called, which returns its error.
func (r *rig) stream(t *testing.T) (stop func() error) {
	t.Helper()
	run, err := relay.New(r.config(t).Relay, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- run.Run(ctx) }()
	wait.For(t, "the relay to stream", func() bool { return run.Stat().State == relay.Streaming }, func() any { return run.Stat().State })
	return func() error {
		cancel()
		return wait.Receive(t, "the relay to stop", ended)
	}
}
