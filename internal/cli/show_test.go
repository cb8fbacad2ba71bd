package cli

import (
	"strings"
	"testing"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		`"o-1"`:                        `"o-1" (5 bytes)`,
		"":                             "empty",
		"\ta":                          `"\ta" (2 bytes)`,
		"a\tb":                         `"a\tb" (3 bytes)`,
		"\x00\xff":                     "0x00ff (2 bytes)",
		"Zoë":                          "Zoë (4 bytes)",
		strings.Repeat("x", 500):       strings.Repeat("x", 400) + "… (500 bytes)",
		strings.Repeat("x", 399) + "ë": strings.Repeat("x", 399) + "… (401 bytes)",
	} {
		if got := visible([]byte(text)); got != want {
			t.Errorf("visible(%q) = %s, want %s", text, got, want)
		}
	}
	if got := visible(nil); got != "null" {
		t.Errorf("visible(nil) = %s", got)
	}
}
