package inboxprom_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/inbox/inboxprom"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

var update = flag.Bool("update", false, "write the metrics into docs/inbox-reference.md")

// noDB is a DB that the test does not use.
type noDB struct{ inbox.DB }

func TestCollector(t *testing.T) {
	p, err := inbox.NewProcessor(noDB{}, inbox.Config{
		Consumer: "mail", OnUnknownType: inbox.IgnoreUnknown,
		Handlers: map[string]inbox.Handler{"OrderPaid": func(context.Context, pgx.Tx, inbox.Event) error { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := inbox.Event{Headers: []inbox.Header{{Name: "id", Value: []byte("0199a3c1-7a00-7000-8000-000000000001")}, {Name: "eventType", Value: []byte("Other")}}}
	if err := p.Handle(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(inboxprom.New(p, "mail"))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 13 {
		t.Errorf("%d metrics, want 13", len(families))
	}
	found := 0
	page := "| metric | type | meaning |\n|---|---|---|\n"
	for _, f := range families {
		page += fmt.Sprintf("| `%s` | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), f.GetHelp())
		if !strings.HasPrefix(f.GetName(), "outbox_cdc_inbox_") || f.GetHelp() == "" {
			t.Errorf("%s: %s", f.GetName(), f.GetHelp())
		}
		if len(f.GetMetric()) != 2 {
			t.Errorf("%s has %d types, want OrderPaid and the empty one", f.GetName(), len(f.GetMetric()))
		}
		for _, m := range f.GetMetric() {
			if f.GetName() == "outbox_cdc_inbox_ignored_total" && m.GetLabel()[1].GetValue() == "" && m.GetCounter().GetValue() == 1 {
				found++
			}
		}
	}
	if found != 1 {
		t.Error("the ignored event is not counted")
	}
	doctest.CheckPart(t, "../../docs/inbox-reference.md", "metrics", page, *update)
}
