package cli

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}

// When the log says that the configuration is reloaded, its new level applies. The line itself appears at any level.
func TestReloadedLevel(t *testing.T) {
	load := func(level string) *config.Config {
		cfg, err := config.Load(config.Sources{Environ: []string{"OUTBOX_CDC_LOG_LEVEL=" + level}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for _, levels := range [][2]string{{"info", "error"}, {"error", "info"}, {"error", "debug"}} {
		before, after := load(levels[0]), load(levels[1])
		r := newReloader(func() (*config.Config, error) { return after, nil })
		defer r.close()
		var lines []string
		var during slog.Level
		log := r.logger(before, writerFunc(func(line string) {
			lines, during = append(lines, line), r.level.Level()
		}))
		r.reload(t.Context(), before, log)
		if len(lines) != 1 || !strings.Contains(lines[0], `"msg":"configuration reloaded"`) || !strings.Contains(lines[0], "log.level") {
			t.Errorf("from %s to %s: logged %q", levels[0], levels[1], lines)
		}
		if !strings.EqualFold(during.String(), levels[1]) {
			t.Errorf("from %s to %s: the level was %s when the line was written", levels[0], levels[1], during)
		}
	}
}
