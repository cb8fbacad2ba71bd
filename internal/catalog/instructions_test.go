package catalog

import "testing"

// TestFill: each command in a text gets the configuration file, once.
func TestFill(t *testing.T) {
	terms := Terms{Slot: "s", Publication: "p", Arguments: "-c relay.yaml"}
	for text, want := range map[string]string{
		InstructRecover:                       `outbox-cdc recover -c relay.yaml --dsn "$OPERATOR_DSN"`,
		"outbox-cdc run -c other.yaml":        "outbox-cdc run -c other.yaml",
		"outbox-cdc run --set name=other":     "outbox-cdc run --set name=other",
		"outbox-cdc status, outbox-cdc run.":  "outbox-cdc status -c relay.yaml, outbox-cdc run -c relay.yaml.",
		"outbox-cdc dead-letter release --id": "outbox-cdc dead-letter release -c relay.yaml --id",
		"an outbox-cdc relay of <slot>":       "an outbox-cdc relay of s",
	} {
		if got := terms.Fill(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	flags := Terms{Arguments: "--dsn … --set name=n"}
	for text, want := range map[string]string{
		InstructRecover + " and outbox-cdc run --accept-gap": `outbox-cdc recover --set name=n --dsn "$OPERATOR_DSN" and outbox-cdc run --dsn … --set name=n --accept-gap`,
		"outbox-cdc run --dsn … --set name=other":            "outbox-cdc run --dsn … --set name=other",
	} {
		if got := flags.Fill(text); got != want {
			t.Errorf("started by flags, %q: %q, want %q", text, got, want)
		}
	}
	if got := (Terms{}).Fill("outbox-cdc run <slot>"); got != "outbox-cdc run <slot>" {
		t.Errorf("without terms: %q", got)
	}
}
