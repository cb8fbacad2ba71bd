package command

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// An instruction in a log line is one to copy: it has the configuration file and the slot of the program that logs it.
func TestInstructionsInTheLogHaveTheirTerms(t *testing.T) {
	const file = "relay.yaml"
	for _, format := range []string{"text", "json"} {
		cfg, err := config.Load(config.Sources{File: file, Content: []byte("log: {format: " + format + "}\nsource: {slot: orders}\n")})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		NewLogger(cfg, &out).Warn("keys parked", slog.String("fix", "outbox-cdc dead-letter release --all"), slog.Duration("after", 1500*time.Millisecond),
			slog.Any("err", errors.New("no slot; outbox-cdc setup")), slog.String("topic", "outbox-cdc.positions"), slog.String("query", "drop <slot>"))
		for _, want := range []string{"outbox-cdc dead-letter release -c " + file + " --all", "no slot; outbox-cdc setup -c " + file, "1.5s", "outbox-cdc.positions", "drop orders"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %s", format, want, out.String())
			}
		}
	}
}
