package sinktest

import (
	"context"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Inspect returns what a broker finds. Each [sink.Finding] must be about one of the broker's conditions.
func Inspect(ctx context.Context, t *testing.T, broker sink.Inspector, use sink.Use) []sink.Finding {
	t.Helper()
	findings := broker.Inspect(ctx, use)
	for _, f := range findings {
		i := slices.IndexFunc(broker.Conditions(), func(c sink.Condition) bool { return c.Name == f.Condition })
		switch {
		case i < 0:
			t.Errorf("%q is not one of the conditions: %+v", f.Condition, f)
		case f.Object != "" && broker.Conditions()[i].Object == "":
			t.Errorf("condition %q does not say what it is tested for each of: %+v", f.Condition, f)
		}
	}
	return findings
}

// AtStart returns what the start of a relay warns of: the conditions that are not met, of those that it tests.
func AtStart(ctx context.Context, t *testing.T, broker sink.Inspector, use sink.Use) (unmet []string) {
	t.Helper()
	use.Short = true
	for _, f := range Inspect(ctx, t, broker, use) {
		tested := slices.ContainsFunc(broker.Conditions(), func(c sink.Condition) bool { return c.Name == f.Condition && c.Short })
		if tested && f.State != sink.Met {
			unmet = append(unmet, f.Condition)
		}
	}
	return unmet
}
