package command

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// A command in a log line is one to copy: it has the configuration file of the program that logs it.
func TestCommandsInTheLogHaveTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	text := "source: {dsn: postgres://cdc@db/app, publication: outbox_cdc, slot: outbox_cdc}\noutbox: {topic: orders}\nsink: {kafka: {brokers: [kafka:9092]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json"} {
		cfg, err := config.Load(config.Sources{File: file})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Log.Format = format
		var out strings.Builder
		NewLogger(cfg, &out).Warn("keys parked", slog.String("fix", "outbox-cdc dead-letter release --all"), slog.Duration("after", 1500*time.Millisecond),
			slog.Any("err", errors.New("no slot; outbox-cdc setup")), slog.String("topic", "outbox-cdc.positions"))
		for _, want := range []string{"outbox-cdc dead-letter release -c " + file + " --all", "no slot; outbox-cdc setup -c " + file, "1.5s", "outbox-cdc.positions"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in %s", format, want, out.String())
			}
		}
	}
}
